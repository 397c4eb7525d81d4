//! Regular expressions in the syntax of Go (RE2), translated to the syntax of the crate `regex`.

use regex::{Regex, RegexBuilder};

/// Maximum size of a compiled pattern, in bytes.
const SIZE: usize = 4 << 20;
/// Smallest size limit with which a pattern is compiled, in bytes.
const MIN_SIZE: usize = 1 << 10;
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

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, PatternError> {
        Self::compile(&translate(text)?, SIZE, SIZE)
    }

    /// Compiles a pattern. The compiled pattern and its evaluation may need at most `most` bytes
    /// each. The pattern is compiled with growing limits, so that [`Self::size`] of the result is
    /// at most twice the necessary size, or [`MIN_SIZE`].
    pub(crate) fn with_size_limit(text: &str, most: usize) -> Result<Self, PatternError> {
        let text = translate(text)?;
        let mut size = MIN_SIZE.min(most);
        loop {
            match Self::compile(&text, size, most) {
                Err(PatternError::Unknown(_)) if size < most => {
                    size = size.saturating_mul(2).min(most);
                }
                compiled => return compiled,
            }
        }
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
}
