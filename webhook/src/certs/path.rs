//! The Secret with the tokens of webhook paths, which all replicas share. This module reads,
//! creates and rotates tokens. The module `caller` checks callers, and the module `registrations`
//! sets the path.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::secret::{SecretDecision, SecretError, read_or_write};
use crate::caller::{OVERLAP, Token, Tokens};

/// Name of the Secret with the tokens.
const PATH: &str = "bundle-webhook-path";
const CURRENT: &str = "current";
const PREVIOUS: &str = "previous";
const ROTATED: &str = "rotated";

/// The reasons for a rotation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rotation {
    /// True if this process has just started.
    pub(super) at_start: bool,
    /// Maximum age of a token. `None`: unlimited.
    pub(super) interval: Option<Duration>,
    /// Start of the last period in which the registrations were not intact, if this period has
    /// ended and requires a rotation.
    pub(super) gap: Option<Timestamp>,
}

impl Rotation {
    /// Returns true if tokens that were created at `rotated` must be replaced at `now`. One
    /// rotation after each `gap` is sufficient for all replicas. Replicas that start at the same
    /// time rotate only once, because a second rotation would invalidate the token that API servers
    /// still use.
    pub(super) fn is_due(&self, rotated: Timestamp, now: Timestamp) -> bool {
        let age = Duration::try_from(now.duration_since(rotated)).unwrap_or_default();
        let is_older = |limit: Duration| age >= limit;
        // The clock of the replica that created the tokens was far ahead.
        let is_ahead = rotated.duration_since(now) > SignedDuration::from_hours(1);
        is_ahead
            || self.gap.is_some_and(|began| rotated < began)
            || (self.at_start && is_older(OVERLAP))
            || self.interval.is_some_and(is_older)
    }
}

/// Returns the tokens. Creates or rotates the stored tokens if necessary.
pub(super) async fn tokens(
    secrets: &Api<Secret>,
    rotation: Rotation,
) -> Result<Tokens, SecretError> {
    read_or_write(secrets, PATH, |data| {
        let now = Timestamp::now();
        let stored = data.and_then(read);
        Ok(match stored {
            Some(tokens) if !rotation.is_due(tokens.rotated, now) => SecretDecision::Keep(tokens),
            stored => SecretDecision::Write(write(&Tokens::rotate(stored, now))),
        })
    })
    .await
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<Tokens> {
    let text = |key: &str| std::str::from_utf8(&data.get(key)?.0).ok();
    Some(Tokens {
        current: Token::parse(text(CURRENT)?)?,
        previous: text(PREVIOUS).and_then(Token::parse),
        rotated: text(ROTATED)?.parse().ok()?,
    })
}

fn write(tokens: &Tokens) -> BTreeMap<String, ByteString> {
    let previous = tokens.previous.as_ref().map(Token::as_str);
    [
        (CURRENT, tokens.current.as_str()),
        (PREVIOUS, previous.unwrap_or_default()),
        (ROTATED, &tokens.rotated.to_string()),
    ]
    .map(|(key, text)| (key.to_owned(), ByteString(text.into())))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROTATED_AT: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn after(seconds: i64) -> Timestamp {
        ROTATED_AT + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn written_tokens_are_read_back_and_invalid_ones_are_ignored() {
        let first = Tokens::rotate(None, ROTATED_AT);
        let second = Tokens::rotate(Some(first.clone()), after(1));
        for tokens in [first, second] {
            assert_eq!(read(&write(&tokens)), Some(tokens.clone()));
            for key in [CURRENT, ROTATED] {
                let mut data = write(&tokens);
                data.insert(key.to_owned(), ByteString(b"/../".to_vec()));
                assert_eq!(read(&data), None, "{key}");
            }
        }
    }

    #[test]
    fn rotates_after_the_interval_at_start_and_once_for_a_gap() {
        let never = Rotation::default();
        let hourly = Rotation {
            interval: Some(Duration::from_secs(3600)),
            ..never
        };
        let at_start = Rotation {
            at_start: true,
            ..never
        };
        let gap = |began| Rotation {
            gap: Some(after(began)),
            ..never
        };
        for (rotation, now, expected) in [
            (never, after(1_000_000), false),
            (hourly, after(3599), false),
            (hourly, after(3600), true),
            (at_start, after(59), false),
            (at_start, after(60), true),
            (gap(5), after(6), true),
            (gap(-5), after(6), false),
            (never, after(-3601), true),
        ] {
            assert_eq!(
                rotation.is_due(ROTATED_AT, now),
                expected,
                "{rotation:?} {now}"
            );
        }
    }
}
