//! Regular expressions in the syntax of Go (RE2), translated to the syntax of the crate `regex`.

use regex::{Regex, RegexBuilder};

use crate::regex_limits::{self, RegexLimit};

/// Maximum length of a pattern, in bytes.
pub(super) const MAX_LENGTH: usize = 8 << 10;
/// Maximum size of a compiled pattern, in bytes.
const SIZE: usize = 4 << 20;
/// Size limits with which [`Pattern::with_size_limit`] compiles a pattern before it uses the
/// maximum, in bytes.
const SMALL_SIZES: [usize; 2] = [2 << 10, 16 << 10];
/// Maximum repetition count that Go accepts.
const REPEATS: u32 = 1000;

/// A Go pattern, translated to the syntax of the crate `regex`.
pub(crate) struct Pattern {
    regex: Regex,
    /// Upper bound of the size of the compiled pattern, in bytes.
    size: usize,
}

/// Reason why a pattern cannot be translated or compiled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The pattern is invalid: Go also rejects this pattern. Contains the reason.
    Bad(String),
    /// The crate `regex` cannot evaluate the pattern, but Go may accept it. Contains the reason.
    Unknown(String),
}

impl PatternError {
    /// Returns the error for a pattern that exceeds the size limit.
    pub(super) fn too_large() -> Self {
        Self::Unknown("it is too large for this check".to_owned())
    }
}

impl From<RegexLimit> for PatternError {
    fn from(_: RegexLimit) -> Self {
        Self::too_large()
    }
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, PatternError> {
        Self::compile(&translate_within_limits(text)?, SIZE, SIZE)
    }

    /// Compiles a pattern. The compiled pattern and its evaluation may need at most `most` bytes
    /// each. The pattern is compiled with growing limits, so that [`Self::size`] of a small pattern
    /// is small. Each compilation parses the complete pattern, so there are at most three.
    pub(crate) fn with_size_limit(text: &str, most: usize) -> Result<Self, PatternError> {
        let text = translate_within_limits(text)?;
        for size in SMALL_SIZES.into_iter().filter(|size| *size < most) {
            match Self::compile(&text, size, most) {
                Err(PatternError::Unknown(_)) => {}
                compiled => return compiled,
            }
        }
        Self::compile(&text, most, most)
    }

    /// Compiles a translated pattern. The compiled pattern may need at most `size` bytes, and its
    /// evaluation `cache` bytes. [`PatternError::Unknown`] means that `size` is too small.
    fn compile(text: &str, size: usize, cache: usize) -> Result<Self, PatternError> {
        RegexBuilder::new(text)
            .size_limit(size)
            .dfa_size_limit(cache)
            .build()
            .map(|regex| Self { regex, size })
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => PatternError::too_large(),
                error => {
                    // The last line contains the reason. The lines before the last line show the
                    // position.
                    let text = error.to_string();
                    let last = text.lines().last().unwrap_or_default();
                    PatternError::Bad(last.trim_start_matches("error: ").to_owned())
                }
            })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Returns an upper bound of the size of the compiled pattern, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

/// Translates a pattern. Returns [`PatternError::Unknown`] if the pattern exceeds [`MAX_LENGTH`] or
/// [`regex_limits::CLASS_MEMORY`].
fn translate_within_limits(text: &str) -> Result<String, PatternError> {
    regex_limits::check_length(text, MAX_LENGTH)?;
    let translated = translate(text)?;
    regex_limits::class_memory(&translated)?;
    Ok(translated)
}

/// Translates a pattern. Character classes of Go, such as `\d`, contain only ASCII. Within
/// brackets, `[` and `&&` have no special meaning, and a `{` that starts no repetition is a
/// literal.
fn translate(text: &str) -> Result<String, PatternError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    // `None` outside of brackets; `true` if the brackets already contain an item.
    let mut class: Option<bool> = None;
    while let Some(letter) = rest.next() {
        match (letter, class) {
            ('\\', _) => {
                let escaped = rest
                    .next()
                    .ok_or_else(|| PatternError::Bad("it ends with a backslash".to_owned()))?;
                escape(escaped, class.is_some(), &mut out, &mut rest)?;
                class = class.map(|_| true);
            }
            ('[', None) => {
                out.push('[');
                if rest.peek() == Some(&'^') {
                    rest.next();
                    out.push('^');
                }
                class = Some(false);
            }
            (']', Some(true)) => {
                out.push(']');
                class = None;
            }
            ('[', Some(_)) => {
                out.push_str(if rest.peek() == Some(&':') {
                    "["
                } else {
                    "\\["
                });
                if rest.peek() == Some(&':') {
                    // A class such as `[:alpha:]` is copied as a whole.
                    for letter in rest.by_ref() {
                        out.push(letter);
                        if letter == ']' {
                            break;
                        }
                    }
                }
                class = Some(true);
            }
            ('&' | '~' | ']', Some(_)) => {
                out.push('\\');
                out.push(letter);
                class = Some(true);
            }
            ('-', Some(_)) if rest.peek() == Some(&'-') => {
                out.push_str("\\-");
                class = Some(true);
            }
            ('{', None) => {
                // A valid repetition is shorter than 24 characters. Without this limit, the rest of
                // the text would be read once for each brace.
                let ahead: String = rest
                    .clone()
                    .take_while(|letter| *letter != '}')
                    .take(24)
                    .collect();
                if repetition(&ahead, rest.clone().nth(ahead.chars().count()).is_some())? {
                    out.push('{');
                } else {
                    out.push_str("\\{");
                }
            }
            ('}', None) if !open_repetition(&out) => out.push_str("\\}"),
            (letter, class_now) => {
                out.push(letter);
                class = class_now.map(|_| true);
            }
        }
    }
    Ok(out)
}

/// Returns `true` if `{inner}` is a repetition such as `{2,5}`. `closed` is `false` if the pattern
/// ends before the closing brace. Returns an error if a number exceeds the limit of Go.
fn repetition(inner: &str, closed: bool) -> Result<bool, PatternError> {
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !closed || low.is_empty() || !digits(low) || !digits(high) {
        return Ok(false);
    }
    for number in [low, high] {
        if !number.is_empty() && number.parse::<u32>().map_or(true, |n| n > REPEATS) {
            return Err(PatternError::Bad(format!(
                "a repetition of {number} exceeds the limit of {REPEATS}"
            )));
        }
    }
    Ok(true)
}

/// Returns `true` if `out` ends with an unclosed repetition: `{` and digits.
fn open_repetition(out: &str) -> bool {
    let digits = out.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == ',');
    digits.ends_with('{') && !digits.ends_with("\\{")
}

fn escape(
    letter: char,
    in_class: bool,
    out: &mut String,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Result<(), PatternError> {
    match letter {
        'd' => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
        'D' => out.push_str("[^0-9]"),
        's' => out.push_str(if in_class {
            r"\t\n\f\r "
        } else {
            r"[\t\n\f\r ]"
        }),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        'w' => out.push_str(if in_class {
            "0-9A-Za-z_"
        } else {
            "[0-9A-Za-z_]"
        }),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'p' | 'P' => {
            out.push('\\');
            out.push(letter);
            // These braces contain the name of a class, and no repetition.
            if rest.peek() == Some(&'{') {
                for letter in rest.by_ref() {
                    out.push(letter);
                    if letter == '}' {
                        break;
                    }
                }
            }
        }
        'b' if !in_class => out.push_str(r"(?-u:\b)"),
        'B' if !in_class => return Err(PatternError::Unknown(r"it has \B".to_owned())),
        'C' => return Err(PatternError::Unknown(r"it has \C".to_owned())),
        'Q' => {
            let mut quoted = String::new();
            for letter in rest.by_ref() {
                quoted.push(letter);
                if quoted.ends_with("\\E") {
                    quoted.truncate(quoted.len() - 2);
                    break;
                }
            }
            out.push_str(&regex::escape(&quoted));
        }
        '0'..='7' => {
            return Err(PatternError::Unknown("it has an octal escape".to_owned()));
        }
        'Z' | 'u' | 'U' | 'h' | 'H' | 'R' | 'X' | 'K' | 'G' | 'k' => {
            return Err(PatternError::Bad(format!("`\\{letter}` is not an escape")));
        }
        // `\<` and `\>` are word boundaries in the crate `regex`, and ordinary characters in Go.
        '<' | '>' => out.push(letter),
        letter => {
            out.push('\\');
            out.push(letter);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_patterns_that_go_accepts() {
        for (pattern, yes, no) in [
            (r"^\d+$", "12", "१२"),
            (r"^[\w.-]+$", "a.b-c", "é"),
            (r"^[a-z]([-a-z0-9]*[a-z0-9])?$", "ab-c", "-a"),
            (r"^[[]x]$", "[x]", "x"),
            (r"^a{2}$", "aa", "a"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^{{x}}$", "{{x}}", "x"),
            (r"^[&&a]+$", "&a", "b"),
            (r"^\<a\>$", "<a>", "a"),
            (r"^\Qa.b\E$", "a.b", "aXb"),
            (r"^[[:alpha:]]+$", "ab", "1"),
            (r"^[]a]+$", "]a", "b"),
            (r"^(?i)AB$", "ab", "abc"),
            (r"^\p{Lu}{2}$", "ÄÖ", "äö"),
            (r"^[\P{Greek}-]+$", "a-", "α"),
            (r"^\pN\PN$", "1a", "11"),
        ] {
            let compiled = Pattern::new(pattern)
                .map_err(|why| format!("{pattern}: {why:?}"))
                .unwrap();
            assert!(compiled.matches(yes), "{pattern} {yes}");
            assert!(!compiled.matches(no), "{pattern} {no}");
        }
        for pattern in ["(", "a(?=b)", r"(a)\k", "a{1001}", "[a", "*", "a**b("] {
            assert!(
                matches!(Pattern::new(pattern), Err(PatternError::Bad(_))),
                "{pattern}"
            );
        }
        assert!(matches!(Pattern::new(r"\C"), Err(PatternError::Unknown(_))));
    }

    #[test]
    fn large_patterns_need_more_steps() {
        let size = |text: &str| {
            let pattern = Pattern::with_size_limit(text, 64 << 10);
            pattern.map(|pattern| pattern.size())
        };
        let (small, large) = (size("^a").unwrap(), size("[ab]*a[ab]{500}c").unwrap());
        assert!(small <= 2 << 10, "{small}");
        assert!((8 << 10..=64 << 10).contains(&large), "{large}");
        assert_eq!(size("(a{1000}){100}"), Err(PatternError::too_large()));
        assert!(matches!(size("("), Err(PatternError::Bad(_))));
    }

    #[test]
    fn ordinary_patterns_are_compiled() {
        let long = format!("^({})$", ["[a-z]+-[0-9]+"; 500].join("|"));
        for pattern in [
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            r"^((25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d)$",
            r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$",
            "^.{1,253}$",
            r"\p{L}",
            r"(?i:\p{L})",
            long.as_str(),
        ] {
            assert!(Pattern::new(pattern).is_ok(), "{pattern}");
        }
    }

    /// Without the limits, the largest of these patterns would need more than 100 MiB.
    #[test]
    fn long_patterns_and_many_classes_are_not_compiled() {
        for pattern in [
            "a".repeat(MAX_LENGTH + 1),
            r"\pL".repeat(MAX_LENGTH / 3),
            format!("(?i){}", r"\pL".repeat(MAX_LENGTH / 3 - 2)),
            format!("(?i){}", r"\p{Any}".repeat(1_169)),
            format!("(?i){}", r"[\x00-\x{10FFFF}]".repeat(400)),
        ] {
            let errors = [
                Pattern::new(&pattern).err(),
                Pattern::with_size_limit(&pattern, 128 << 10).err(),
            ];
            for error in errors {
                assert_eq!(error, Some(PatternError::too_large()), "{pattern}");
            }
        }
    }
}
