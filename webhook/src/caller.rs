//! The paths under which the API server calls us: `/validate/TOKEN` and `/mutate/TOKEN`. A token is unguessable and lives for about an hour.
//! It is no long-term secret: error messages of API servers contain the URL. Storing and rotating tokens is the task of `certs::path`.

use std::fmt;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

/// Characters of a token: 256 bits in hexadecimal. API servers require of each segment of `clientConfig.service.path` that it is a lowercase RFC 1123
/// subdomain.
const TOKEN_LENGTH: usize = 64;
/// How long the previous token is accepted after the registrations have been seen with the current one.
pub(crate) const OVERLAP: Duration = Duration::from_secs(60);

/// The last segment of the path under which the API server calls us. `Debug` never shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A new one.
    pub(crate) fn random() -> Self {
        let half = rand::random::<u128>;
        Self(format!("{:032x}{:032x}", half(), half()))
    }

    /// Reads one; `None` for text that no token of ours can be.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == TOKEN_LENGTH
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }

    /// Its text, for the path in a registration.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    fn is(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The tokens that all replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// The one that registrations get.
    pub(crate) current: Token,
    /// The one before it, which reviews in flight still use.
    pub(crate) previous: Option<Token>,
    /// When `current` was made.
    pub(crate) rotated: Timestamp,
}

impl Tokens {
    /// The tokens after a rotation of `before` at `now`.
    pub(crate) fn rotate(before: Option<Self>, now: Timestamp) -> Self {
        Self {
            current: Token::random(),
            previous: before.map(|before| before.current),
            rotated: now,
        }
    }
}

#[derive(Debug)]
struct Accepted {
    tokens: Tokens,
    /// When the registrations were first seen with the current token.
    in_use: Option<Instant>,
}

/// The tokens that this process accepts. Nothing is accepted before [`Paths::set`].
#[derive(Debug, Default)]
pub struct Paths(ArcSwapOption<Accepted>);

impl Paths {
    /// Takes tokens into use.
    pub(crate) fn set(&self, tokens: Tokens) {
        if self.tokens().as_ref() != Some(&tokens) {
            let in_use = None;
            self.0.store(Some(Accepted { tokens, in_use }.into()));
        }
    }

    /// The registrations have the current token since `now`: from here on the previous one ends.
    pub(crate) fn set_in_use(&self, now: Instant) {
        if let Some(accepted) = self.0.load_full().filter(|known| known.in_use.is_none()) {
            let tokens = accepted.tokens.clone();
            let in_use = Some(now);
            self.0.store(Some(Accepted { tokens, in_use }.into()));
        }
    }

    /// The tokens in use.
    pub(crate) fn tokens(&self) -> Option<Tokens> {
        self.0.load().as_ref().map(|known| known.tokens.clone())
    }

    /// Whether a caller with this token is an API server, as far as a path can show that.
    pub(crate) fn accepts(&self, token: &Token, now: Instant) -> bool {
        let Some(known) = self.0.load_full() else {
            return false;
        };
        let overlaps = known.in_use.is_none_or(|since| now < since + OVERLAP);
        let previous = known.tokens.previous.as_ref().filter(|_| overlaps);
        let is_current = known.tokens.current.is(token);
        previous.is_some_and(|previous| previous.is(token)) | is_current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    #[test]
    fn tokens_are_unguessable_valid_in_service_paths_and_not_shown_in_logs() {
        let (one, other) = (Token::random(), Token::random());
        assert_ne!(one, other);
        assert_eq!(Token::parse(one.as_str()), Some(one.clone()));
        assert!(!format!("{one:?}").contains(one.as_str()));
        // A label of DNS, as the API server requires of a Service's path.
        let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        assert!(one.as_str().bytes().all(is_valid));
        assert_eq!(one.as_str().len(), 64);
        for text in [
            "",
            "short",
            &"a/".repeat(32),
            &"A".repeat(64),
            &"a".repeat(65),
        ] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }

    #[test]
    fn accepts_the_previous_token_until_a_minute_after_the_registrations_have_the_current_one() {
        let paths = Paths::default();
        let began = Instant::now();
        let first = Tokens::rotate(None, NOW);
        assert!(!paths.accepts(&first.current, began));
        paths.set(first.clone());
        assert!(paths.accepts(&first.current, began));
        assert!(!paths.accepts(&Token::random(), began));

        let second = Tokens::rotate(Some(first.clone()), NOW);
        paths.set(second.clone());
        let much_later = began + OVERLAP * 10;
        assert!(paths.accepts(&first.current, much_later));
        paths.set_in_use(much_later);
        paths.set_in_use(much_later + OVERLAP);
        paths.set(second.clone());
        for (after, expected) in [(OVERLAP / 2, true), (OVERLAP, false)] {
            assert_eq!(paths.accepts(&first.current, much_later + after), expected);
            assert!(paths.accepts(&second.current, much_later + after));
        }

        let third = Tokens::rotate(Some(second.clone()), NOW);
        paths.set(third);
        assert!(paths.accepts(&second.current, much_later));
        assert!(!paths.accepts(&first.current, much_later));
    }
}
