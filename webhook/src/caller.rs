//! The secret paths of the webhook: `/validate/TOKEN` and `/mutate/TOKEN`. A token is random and
//! expires after about an hour. A token is not a long-term secret, because error messages of API
//! servers contain the URL. `certs::path` stores and rotates tokens.

use std::fmt;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

/// Number of characters of a token: 256 bits in hexadecimal. API servers require that each segment
/// of `clientConfig.service.path` is a lowercase RFC 1123 subdomain.
const TOKEN_LENGTH: usize = 64;
/// Time for which the previous token is accepted after the registrations have the current token.
pub(crate) const OVERLAP: Duration = Duration::from_secs(60);

/// The last segment of the path of the webhook. `Debug` never prints this secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Returns a new random token.
    pub(crate) fn random() -> Self {
        let half = rand::random::<u128>;
        Self(format!("{:032x}{:032x}", half(), half()))
    }

    /// Parses a token. Returns `None` for text that cannot be a token.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == TOKEN_LENGTH
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the text for the path of a registration.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if both tokens are equal. The comparison takes constant time.
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
    /// The token that registrations must contain.
    pub(crate) current: Token,
    /// The previous token, which reviews in flight can still use.
    pub(crate) previous: Option<Token>,
    /// Time at which `current` was created.
    pub(crate) rotated: Timestamp,
}

impl Tokens {
    /// Returns the tokens after a rotation of `before` at `now`.
    pub(crate) fn rotate(before: Option<Self>, now: Timestamp) -> Self {
        Self {
            current: Token::random(),
            previous: before.map(|before| before.current),
            rotated: now,
        }
    }
}

#[derive(Debug)]
struct TokensInUse {
    tokens: Tokens,
    /// Time at which the registrations were first observed with the current token.
    in_use: Option<Instant>,
}

/// The tokens that this process accepts. No token is accepted before [`AcceptedTokens::set`].
#[derive(Debug, Default)]
pub struct AcceptedTokens(ArcSwapOption<TokensInUse>);

impl AcceptedTokens {
    /// Replaces the accepted tokens.
    pub(crate) fn set(&self, tokens: Tokens) {
        if self.tokens().as_ref() != Some(&tokens) {
            let in_use = None;
            self.0.store(Some(TokensInUse { tokens, in_use }.into()));
        }
    }

    /// Records that the registrations have the current token since `now`. The previous token
    /// expires after [`OVERLAP`].
    pub(crate) fn set_in_use(&self, now: Instant) {
        if let Some(accepted) = self.0.load_full().filter(|known| known.in_use.is_none()) {
            let tokens = accepted.tokens.clone();
            let in_use = Some(now);
            self.0.store(Some(TokensInUse { tokens, in_use }.into()));
        }
    }

    /// Returns the current and the previous token. Returns `None` before [`AcceptedTokens::set`].
    pub(crate) fn tokens(&self) -> Option<Tokens> {
        self.0.load().as_ref().map(|known| known.tokens.clone())
    }

    /// Returns true if `token` is the current token, or the previous token before it expires.
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
    fn tokens_are_random_valid_in_service_paths_and_not_logged() {
        let (one, other) = (Token::random(), Token::random());
        assert_ne!(one, other);
        assert_eq!(Token::parse(one.as_str()), Some(one.clone()));
        assert!(!format!("{one:?}").contains(one.as_str()));
        // The API server requires that each segment of `clientConfig.service.path` is a lowercase
        // RFC 1123 subdomain.
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
        let paths = AcceptedTokens::default();
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
