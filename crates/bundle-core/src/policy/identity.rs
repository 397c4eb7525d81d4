//! Identities of certificates, and matchers for them: exact text or regular expression.

use std::fmt;

use regex::{Regex, RegexBuilder};
use serde::Serialize;

/// Maximum length of a pattern, in bytes.
const LONGEST_PATTERN: usize = 1024;
/// Maximum memory of a compiled pattern, in bytes. This memory is sufficient for patterns of
/// identities.
const PATTERN_MEMORY: usize = 256 * 1024;

/// Matcher for an issuer or a subject.
#[derive(Debug, Clone)]
pub enum Matcher {
    /// Exact text. No character has a special meaning.
    Exact(String),
    /// A regular expression that must match the whole text.
    Pattern(Regex),
}

impl Matcher {
    /// Returns a matcher for exact text.
    pub fn exact(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(Self::Exact(text.to_owned()))
    }

    /// Returns a matcher for a regular expression, which must match the whole text. Returns the
    /// reason as an error if `text` is empty, too long or not a valid expression.
    pub fn pattern(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        if text.len() > LONGEST_PATTERN {
            return Err(format!("it is longer than {LONGEST_PATTERN} bytes"));
        }
        let compile = |text: &str| {
            RegexBuilder::new(text)
                .size_limit(PATTERN_MEMORY)
                .dfa_size_limit(PATTERN_MEMORY)
                .build()
                .map_err(|error| format!("invalid regular expression: {error}"))
        };
        // The pattern alone must be valid: `a)|(b` is invalid, but would become valid within the
        // group that anchors it.
        compile(text)?;
        compile(&format!(r"\A(?:{text})\z")).map(Self::Pattern)
    }

    /// Returns `true` if `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Pattern(pattern) => pattern.is_match(text),
        }
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) => one == other,
            (Self::Pattern(one), Self::Pattern(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}
impl Eq for Matcher {}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => f.write_str(text),
            Self::Pattern(pattern) => {
                let text = pattern.as_str();
                let inner = text
                    .strip_prefix(r"\A(?:")
                    .and_then(|rest| rest.strip_suffix(r")\z"));
                write!(f, "/{}/", inner.unwrap_or(text))
            }
        }
    }
}

/// Identity in a policy. Both the issuer and the subject of one certificate must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// OpenID Connect issuer of the subject's token.
    pub issuer: Matcher,
    /// Subject: an email address or the URI of a workflow.
    pub subject: Matcher,
}

impl Identity {
    /// Returns `true` if issuer and subject match.
    pub fn matches(&self, name: &IdentityName) -> bool {
        self.issuer.matches(&name.issuer) && self.subject.matches(&name.subject)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.subject, self.issuer)
    }
}

/// Identity in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct IdentityName {
    /// OpenID Connect issuer.
    pub issuer: String,
    /// Subject: an email address or the URI of a workflow.
    pub subject: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CI: &str =
        "https://github.com/example/web/.github/workflows/release.yaml@refs/heads/main";

    #[test]
    fn exact_matcher_compares_bytes() {
        let exact = Matcher::exact(CI).unwrap();
        assert!(exact.matches(CI));
        for other in [
            // Changes of the text: a prefix, a longer text, other case, a space, a similar letter
            // (Cyrillic а), a combining character, percent encoding.
            &CI[..CI.len() - 1],
            &format!("{CI}2"),
            &CI.to_uppercase(),
            &format!("{CI} "),
            &CI.replace("main", "m\u{430}in"),
            &CI.replace("main", "ma\u{0069}\u{0307}n"),
            &CI.replace("/web/", "%2Fweb/"),
            // More changes: zero-width characters, another space, line ends, NUL, an escape
            // sequence, right-to-left text, a full-width letter, a tag character.
            &CI.replace("main", "ma\u{200b}in"),
            &CI.replace("main", "main\u{feff}"),
            &format!("{CI}\u{a0}"),
            &format!("{CI}\n"),
            &format!("{CI}\r"),
            &format!("{CI}\0"),
            &format!(" {CI}"),
            &format!("{CI}\u{202e}"),
            &CI.replace("main", "\u{ff4d}ain"),
            &CI.replace("@refs", "\u{e0040}@refs"),
            &CI.replace("https", "HTTPS"),
            &CI.replace("github.com", "github.com."),
            &CI.replace("github.com", "github.com:443"),
            "",
        ] {
            assert!(!exact.matches(other), "{other}");
        }
        // Composed and decomposed characters differ, in both directions.
        for (one, other) in [
            ("\u{e9}", "e\u{301}"),
            ("\u{212b}", "\u{c5}"),
            ("\u{fb01}", "fi"),
        ] {
            assert!(!Matcher::exact(one).unwrap().matches(other), "{one}");
            assert!(!Matcher::exact(other).unwrap().matches(one), "{other}");
        }
        // Wildcards of other formats have no special meaning in an exact text.
        for wildcard in ["*@example.com", ".*", "?", "[a-z]@example.com", "%"] {
            let exact = Matcher::exact(wildcard).unwrap();
            assert!(exact.matches(wildcard));
            assert!(!exact.matches("a@example.com"));
        }
    }

    #[test]
    fn regular_expression_must_match_the_whole_text() {
        let pattern = Matcher::pattern("https://github.com/example/(web|api)").unwrap();
        assert!(pattern.matches("https://github.com/example/web"));
        for other in [
            "https://github.com/example/web2",
            "xhttps://github.com/example/web",
            "https://github.com/example/web\n",
            "https://github.com/example/web\nhttps://github.com/example/web",
            "https://github.com/example/web\r",
            "https://github.com/example/web\u{200b}",
            "https://github.com/example/w\u{435}b",
            "HTTPS://github.com/example/web",
        ] {
            assert!(!pattern.matches(other), "{other:?}");
        }
        // Alternatives and flags in a pattern do not change the anchors.
        let either = Matcher::pattern("a|b").unwrap();
        assert!(either.matches("a") && !either.matches("ax") && !either.matches("xb"));
        let lines = Matcher::pattern("(?m)^a$").unwrap();
        assert!(lines.matches("a") && !lines.matches("a\nb") && !lines.matches("b\na"));
        assert_eq!(
            pattern.to_string(),
            "/https://github.com/example/(web|api)/"
        );
    }

    #[test]
    fn rejects_patterns_that_escape_anchors_or_exceed_memory() {
        for text in ["", "a)|(?:b", "(", "*", "(?x)a #", "(?=a)"] {
            assert!(Matcher::pattern(text).is_err(), "{text}");
        }
        assert!(Matcher::pattern(&"a".repeat(LONGEST_PATTERN + 1)).is_err());
        assert!(Matcher::pattern(r"(?:a{500}){500}").is_err());
        assert!(Matcher::exact("").is_err());
    }
}
