//! Limits of regular expressions from content. The crates that compile a pattern limit the size of
//! the result, but not the memory and time before: each class gets a copy of its ranges of
//! characters, such as 677 ranges for the 5 bytes `\p{L}`. Therefore these limits are checked
//! before a pattern is translated or compiled.
//!
//! Callers replace `\d`, `\s` and `\w` by ASCII or ECMA-262 classes. The estimate of these classes
//! also limits the time of this translation.

use std::convert::Infallible;
use std::fmt;

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    self, Ast, ClassPerlKind, ClassSetBinaryOp, ClassSetItem, Flag, Flags, Visitor,
};

/// Maximum memory of the character classes of one pattern, in bytes.
pub(crate) const CLASS_MEMORY: usize = 1 << 20;
/// Maximum nesting of a pattern. The crate `regex` has the same limit.
const NEST_LIMIT: u32 = 250;
/// Memory of a Unicode class such as `\p{L}`, in bytes: about 800 ranges of 8 bytes, in a list with
/// unused capacity.
const UNICODE: usize = 16 << 10;
/// Memory of a class with many characters and their other cases, in bytes: about 4,000 ranges of 8
/// bytes, in a list with unused capacity.
const FOLDED: usize = 64 << 10;
/// Memory of `\d` and `\w`, in bytes.
const PERL: usize = 4 << 10;
/// Memory of `\s`, in bytes. The ECMA-262 class has a long text.
const PERL_SPACE: usize = 8 << 10;
/// Memory of a class in brackets without its items, in bytes.
const BRACKETS: usize = 128;
/// Memory of a character or range in brackets, in bytes.
const ITEM: usize = 64;
/// Memory of a character in brackets with its other cases, in bytes.
const FOLDED_ITEM: usize = 128;
/// Memory of a class such as `[:alpha:]`, in bytes.
const ASCII: usize = 512;
/// Memory of a class such as `[:alpha:]` with the other cases of its characters, in bytes.
const FOLDED_ASCII: usize = 8 << 10;

/// Limit that a pattern exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegexLimit {
    /// Maximum length of the text, in bytes.
    Length(usize),
    /// Maximum memory of the character classes, in bytes.
    ClassMemory(usize),
}

impl fmt::Display for RegexLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length(most) => write!(f, "is longer than {most} bytes"),
            Self::ClassMemory(most) => write!(
                f,
                "needs more than {} KiB for its character classes",
                most >> 10
            ),
        }
    }
}

/// Returns an error if the text of a pattern is longer than `most` bytes.
pub(crate) fn check_length(pattern: &str, most: usize) -> Result<(), RegexLimit> {
    if pattern.len() > most {
        return Err(RegexLimit::Length(most));
    }
    Ok(())
}

/// Returns the estimated memory of the character classes of a pattern, in bytes. Returns an error
/// if the memory exceeds [`CLASS_MEMORY`]. Needs time and memory in proportion to the length of the
/// pattern, so callers limit the length first.
pub(crate) fn class_memory(pattern: &str) -> Result<usize, RegexLimit> {
    let memory = estimate(pattern);
    if memory > CLASS_MEMORY {
        return Err(RegexLimit::ClassMemory(CLASS_MEMORY));
    }
    Ok(memory)
}

fn estimate(pattern: &str) -> usize {
    let parsed = ParserBuilder::new()
        .nest_limit(NEST_LIMIT)
        .build()
        .parse(pattern);
    match parsed {
        Ok(ast) => ast::visit(&ast, Estimate::default()).unwrap_or(usize::MAX),
        Err(_) => estimate_text(pattern),
    }
}

/// Returns an upper estimate for a pattern in another syntax, such as ECMA-262.
fn estimate_text(pattern: &str) -> usize {
    let mut estimate = Estimate::default();
    let mut rest = pattern.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => match rest.next() {
                Some('p' | 'P') => estimate.add(UNICODE, FOLDED),
                Some('D' | 'S' | 'W') => estimate.add(PERL_SPACE, FOLDED),
                Some('s') => estimate.add(PERL_SPACE, PERL_SPACE),
                // A translation replaces `\c` as it replaces `\d`.
                Some('d' | 'w' | 'c') => estimate.add(PERL, PERL),
                _ => estimate.add(ITEM, FOLDED_ITEM),
            },
            '[' => estimate.add(BRACKETS, BRACKETS),
            // The range can contain all characters.
            '-' => estimate.add(ITEM, FOLDED),
            '?' => {
                let mut flags = rest.clone().take_while(|letter| {
                    letter.is_ascii_alphabetic() || letter.is_whitespace() || *letter == '-'
                });
                estimate.ignores_case |= flags.any(|flag| flag == 'i');
                estimate.add(ITEM, FOLDED_ITEM);
            }
            _ => estimate.add(ITEM, FOLDED_ITEM),
        }
    }
    estimate.total()
}

/// Estimate of the memory of the character classes of a pattern.
#[derive(Default)]
struct Estimate {
    /// Memory without the flag `i`, in bytes.
    plain: usize,
    /// Memory if the flag `i` applies to the complete pattern, in bytes.
    folded: usize,
    /// `true` if a part of the pattern has the flag `i`.
    ignores_case: bool,
}

impl Estimate {
    fn add(&mut self, plain: usize, folded: usize) {
        self.plain = self.plain.saturating_add(plain);
        self.folded = self.folded.saturating_add(folded);
    }

    fn add_flags(&mut self, flags: &Flags) {
        self.ignores_case |= flags.flag_state(Flag::CaseInsensitive) == Some(true);
    }

    fn total(&self) -> usize {
        if self.ignores_case {
            self.folded
        } else {
            self.plain
        }
    }
}

impl Visitor for Estimate {
    type Output = usize;
    type Err = Infallible;

    fn finish(self) -> Result<usize, Infallible> {
        Ok(self.total())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        match ast {
            Ast::Flags(set) => self.add_flags(&set.flags),
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    self.add_flags(flags);
                }
            }
            Ast::ClassUnicode(_) => self.add(UNICODE, FOLDED),
            Ast::ClassPerl(class) => self.add(perl(&class.kind), perl(&class.kind)),
            Ast::ClassBracketed(_) => self.add(BRACKETS, BRACKETS),
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        // An inner class can be negated. Then it contains nearly all characters.
        let inner = |is_negated: bool, folded: usize| if is_negated { FOLDED } else { folded };
        match item {
            ClassSetItem::Literal(_) => self.add(ITEM, FOLDED_ITEM),
            ClassSetItem::Range(range) => self.add(ITEM, folded_range(range.start.c, range.end.c)),
            ClassSetItem::Ascii(class) => self.add(ASCII, inner(class.negated, FOLDED_ASCII)),
            ClassSetItem::Unicode(_) => self.add(UNICODE, FOLDED),
            ClassSetItem::Perl(class) => {
                let memory = perl(&class.kind);
                self.add(memory, inner(class.negated, memory));
            }
            ClassSetItem::Bracketed(_) => self.add(BRACKETS, FOLDED),
            ClassSetItem::Empty(_) | ClassSetItem::Union(_) => {}
        }
        Ok(())
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), Infallible> {
        self.add(BRACKETS, FOLDED);
        Ok(())
    }
}

fn perl(kind: &ClassPerlKind) -> usize {
    match kind {
        ClassPerlKind::Digit | ClassPerlKind::Word => PERL,
        ClassPerlKind::Space => PERL_SPACE,
    }
}

/// Returns the memory of a range with the other cases of its characters, in bytes.
fn folded_range(start: char, end: char) -> usize {
    let others = u32::from(end).saturating_sub(u32::from(start));
    usize::try_from(others)
        .unwrap_or(usize::MAX)
        .saturating_add(1)
        .saturating_mul(ITEM)
        .saturating_add(ITEM)
        .min(FOLDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP_V4: &str =
        r"((25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d)";
    const SEMVER: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$";

    #[test]
    fn ordinary_patterns_need_a_fraction_of_the_limit() {
        let networks = [IP_V4; 5].join("|");
        for pattern in [
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            networks.as_str(),
            SEMVER,
            "^.{1,253}$",
            r"\p{L}",
            r"^[\p{L}\p{N}\p{P} ]+$",
            "(?i)^[a-z0-9._-]+@[a-z0-9.-]+$",
            r"(?i:\p{L})",
            r"^(?<name>[^/]+)\/(?<tag>\S+)$",
            // The parser of the crate `regex` rejects these patterns.
            r"^[^\cA-\cZ]+$",
            "^[[a-z]+$",
            "^(?!-)[a-z-]+$",
        ] {
            check_length(pattern, 1 << 10).unwrap();
            let memory = class_memory(pattern).unwrap();
            assert!(memory <= CLASS_MEMORY / 4, "{pattern}: {memory}");
        }
    }

    #[test]
    fn many_character_classes_exceed_the_limit() {
        let limit = Err(RegexLimit::ClassMemory(CLASS_MEMORY));
        for (class, accepted) in [
            (r"\p{L}", CLASS_MEMORY / UNICODE),
            (r"\pL", CLASS_MEMORY / UNICODE),
            (r"\P{Greek}", CLASS_MEMORY / UNICODE),
            (r"\d", CLASS_MEMORY / PERL),
            (r"\W", CLASS_MEMORY / PERL),
            (r"\s", CLASS_MEMORY / PERL_SPACE),
        ] {
            let memory = |count: usize| class_memory(&class.repeat(count));
            assert_eq!(memory(accepted), Ok(CLASS_MEMORY), "{class}");
            assert_eq!(memory(accepted + 1), limit, "{class}");
            let bracketed = format!("[{}]", class.repeat(accepted));
            assert_eq!(class_memory(&bracketed), limit, "{bracketed}");
            // The parser of the crate `regex` rejects this pattern.
            let ecma = format!(r"{}\cA(?=a)", class.repeat(accepted));
            assert_eq!(class_memory(&ecma), limit, "{ecma}");
        }
        assert_eq!(class_memory(&r"\cA".repeat(300)), limit);
        assert_eq!(class_memory(&r"\\p".repeat(300)), Ok(0));
    }

    #[test]
    fn flag_i_makes_classes_of_many_characters_larger() {
        let limit = Err(RegexLimit::ClassMemory(CLASS_MEMORY));
        for class in [
            r"\p{Any}",
            r"[\x00-\x{10FFFF}]",
            r"[\D]",
            "[[^a]]",
            "[[:^alpha:]]",
            "[a--b]",
            "[ -\u{10FFFF}]",
        ] {
            let classes = class.repeat(17);
            assert!(class_memory(&classes).is_ok(), "{classes}");
            for folded in [
                format!("(?i){classes}"),
                format!("(?i:{classes})"),
                format!("(?s-m:a(?i)b){classes}"),
            ] {
                assert_eq!(class_memory(&folded), limit, "{folded}");
            }
        }
        let classes = r"\p{L}".repeat(17);
        // The flag of one part counts for the complete pattern.
        assert_eq!(class_memory(&format!("(?i:a){classes}")), limit);
        assert_eq!(class_memory(&format!(r"(?i:a){classes}\cA")), limit);
        assert!(class_memory(&format!("(?-i:a){classes}")).is_ok());
        let ranges = "[a-z0-9]".repeat(100);
        assert!(class_memory(&format!("(?i){ranges}")).is_ok());
    }

    #[test]
    fn messages_name_the_limit() {
        let long = check_length("abc", 2).unwrap_err();
        assert_eq!(long.to_string(), "is longer than 2 bytes");
        let large = class_memory(&r"\p{L}".repeat(100)).unwrap_err();
        assert_eq!(
            large.to_string(),
            "needs more than 1024 KiB for its character classes"
        );
    }
}
