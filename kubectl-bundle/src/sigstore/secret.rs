//! Secret text: tokens, and the credentials to get tokens.

use std::fmt;

use zeroize::Zeroizing;

/// A secret text. The text is erased from memory when this value is dropped, and is hidden in debug
/// output.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    /// Returns the text.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Removes tokens (JWT) and the texts `shown` from `text`, because error messages of services may
/// repeat the input.
pub(super) fn without_secrets(text: &str, shown: &[&str]) -> String {
    const HIDDEN: &str = "(token)";
    let mut text = text.to_owned();
    for secret in shown.iter().filter(|secret| secret.len() > 3) {
        text = text.replace(secret, HIDDEN);
    }
    let mut clean = String::new();
    let mut rest = text.as_str();
    // A JWT begins with the base64 form of `{"`.
    while let Some(at) = rest.find("eyJ") {
        let (before, from) = rest.split_at(at);
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.=+/%".contains(letter);
        let end = from.find(|letter| !is_part(letter)).unwrap_or(from.len());
        clean.push_str(before);
        clean.push_str(if end >= 20 { HIDDEN } else { &from[..end] });
        rest = &from[end..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_tokens() {
        let token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbmEifQ.c2lnbmF0dXJl";
        assert_eq!(format!("{:?}", Secret::from(token.to_owned())), "(secret)");
        for (text, clean) in [
            (
                format!("bad token \"{token}\" here"),
                "bad token \"(token)\" here",
            ),
            (format!("{token}{token}"), "(token)"),
            ("eyJ is short".to_owned(), "eyJ is short"),
            ("agent-secret was shown".to_owned(), "(token) was shown"),
        ] {
            assert_eq!(without_secrets(&text, &["agent-secret", ""]), clean);
        }
    }
}
