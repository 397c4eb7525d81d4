//! The Secret with the tokens of our paths: read, made, and replaced when a rotation is due. All replicas share it.
//! Not here: which callers are accepted (caller), and the registrations that get the path (registrations).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::secret::{Next, SecretError, settle};
use crate::caller::{OVERLAP, Token, Tokens};

/// The Secret.
const PATH: &str = "bundle-webhook-path";
const CURRENT: &str = "current";
const PREVIOUS: &str = "previous";
const ROTATED: &str = "rotated";

/// What makes a rotation due.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rotation {
    /// This process has just started.
    pub(super) at_start: bool,
    /// How long a token is used; `None`: as long as nothing else happens.
    pub(super) interval: Option<Duration>,
    /// When a gap in the registrations began that has ended.
    pub(super) gap: Option<Timestamp>,
}

impl Rotation {
    /// Whether tokens that were made at `rotated` have to be replaced at `now`. One rotation answers a gap for all replicas. Replicas that start together rotate
    /// once, since each rotation ends the token before the previous one.
    pub(super) fn is_due(&self, rotated: Timestamp, now: Timestamp) -> bool {
        let age = Duration::try_from(now.duration_since(rotated)).unwrap_or_default();
        let is_older = |limit: Duration| age >= limit;
        // Made by a clock that is far ahead of ours.
        let is_ahead = rotated.duration_since(now) > SignedDuration::from_hours(1);
        is_ahead
            || self.gap.is_some_and(|began| rotated < began)
            || (self.at_start && is_older(OVERLAP))
            || self.interval.is_some_and(is_older)
    }
}

/// The tokens as they are stored, made if there are none, and rotated if that is due.
pub(super) async fn tokens(
    secrets: &Api<Secret>,
    rotation: Rotation,
) -> Result<Tokens, SecretError> {
    settle(secrets, PATH, |data| {
        let now = Timestamp::now();
        let stored = data.and_then(read);
        Ok(match stored {
            Some(tokens) if !rotation.is_due(tokens.rotated, now) => Next::Keep(tokens),
            stored => Next::Write(write(&Tokens::rotate(stored, now))),
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
    fn tokens_are_read_back_as_they_were_written_and_spoilt_ones_are_not() {
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
