//! Attempts to parse content. Each attempt has a record from its start to its end, under a name
//! that this module generates. A record of an earlier process shows an interrupted attempt: the
//! process ended during the attempt. After the first interrupted attempt, the content is parsed
//! again while no other content is in memory. After further interrupted attempts, there is a pause
//! before the next attempt. The number of attempts has no limit, because the process can also end
//! for other reasons.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::content::ContentId;
use crate::plan::retry::delays;

/// Number of interrupted attempts after which the next attempt waits for a pause. The pause grows
/// with each further interrupted attempt.
pub const INTERRUPTIONS_BEFORE_PAUSE: u32 = 2;

/// Step that reads the whole content. Each step has its own records, because an attempt can end the
/// process in one step and succeed in the other step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseStep {
    /// The memory that the content needs is estimated.
    Weigh,
    /// The content is parsed and rendered.
    Parse,
}

/// Decision on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptDecision {
    /// The attempt may start, also while other content is in memory.
    Try,
    /// The attempt may start only while no other content is in memory. If the attempt succeeds,
    /// other content caused the earlier interruption, and the records of interrupted attempts are
    /// removed.
    TryAlone,
    /// The next attempt must not start before this time has passed.
    Wait(Duration),
}

/// Attempts of one step during which the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptedAttempts {
    /// Number of interrupted attempts.
    pub count: u32,
    /// Start of the last interrupted attempt.
    pub last: SystemTime,
}

/// Returns the decision on content with these interrupted attempts. If the clock was set back, the
/// pause starts at `now`.
pub fn decide(interrupted: Option<InterruptedAttempts>, now: SystemTime) -> AttemptDecision {
    let Some(interrupted) = interrupted else {
        return AttemptDecision::Try;
    };
    let Some(further) = interrupted.count.checked_sub(INTERRUPTIONS_BEFORE_PAUSE) else {
        return AttemptDecision::TryAlone;
    };
    let pause = delays::INTERRUPTED_ATTEMPT.delay(further.saturating_add(1));
    let passed = now.duration_since(interrupted.last).unwrap_or_default();
    match pause.checked_sub(passed) {
        None | Some(Duration::ZERO) => AttemptDecision::TryAlone,
        Some(left) => AttemptDecision::Wait(left),
    }
}

/// Identity of all attempts to run one step for one content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey(String);

impl AttemptKey {
    /// Returns the key of the attempts at `step` for `content`. `owner` identifies the object and
    /// the version of its spec. `program` is the version of this program. If one of these values
    /// changes, the key changes.
    pub fn new(program: &str, owner: &str, content: &ContentId, step: ParseStep) -> Self {
        let (digest, scope) = (content.digest(), content.scope());
        let text = format!("{program}\n{owner}\n{digest}\n{scope}\n{step:?}");
        Self(hex::encode(Sha256::digest(text.as_bytes())))
    }

    /// Returns the name of the record of attempt `number`, counted from 1.
    pub fn record(&self, number: u32) -> String {
        format!("{}.{number}", self.0)
    }
}

/// Returns the interrupted attempts for each key, from names and times of the records of earlier
/// processes. Other names are ignored.
pub fn interrupted_by_key<'a>(
    records: impl IntoIterator<Item = (&'a str, SystemTime)>,
) -> BTreeMap<AttemptKey, InterruptedAttempts> {
    let mut interrupted = BTreeMap::new();
    for (name, written) in records {
        let parts = name.split_once('.');
        let Some((key, Ok(number))) = parts.map(|(key, number)| (key, number.parse::<u32>()))
        else {
            continue;
        };
        let first = InterruptedAttempts {
            count: 0,
            last: written,
        };
        let found = interrupted
            .entry(AttemptKey(key.to_owned()))
            .or_insert(first);
        found.count = found.count.max(number);
        found.last = found.last.max(written);
    }
    interrupted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Digest, Reference};
    use crate::review::Source;
    use crate::review::source::PullCredentials;

    fn content(bytes: &[u8]) -> ContentId {
        let reference: Reference = "registry.example.com/web:1".parse().unwrap();
        let source = Source::Image {
            reference,
            credentials: PullCredentials::Class("plain".parse().unwrap()),
        };
        ContentId::new(&source, Digest::of(bytes))
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn content_is_tried_then_tried_alone_then_paused() {
        use AttemptDecision::*;
        let hours = |hours| Duration::from_hours(hours);
        let start = 1_000_000;
        for (count, passed, expected) in [
            (1, 0, TryAlone),
            (2, 0, Wait(hours(1))),
            (2, 3_599, Wait(Duration::from_secs(1))),
            (2, 3_600, TryAlone),
            (3, 3_600, Wait(hours(1))),
            (3, 7_200, TryAlone),
            (6, 0, Wait(hours(16))),
            (7, 0, Wait(hours(24))),
            (u32::MAX, 0, Wait(hours(24))),
            (u32::MAX, 86_400, TryAlone),
        ] {
            let last = at(start);
            let decided = decide(
                Some(InterruptedAttempts { count, last }),
                at(start + passed),
            );
            assert_eq!(decided, expected, "{count} ends, {passed} s");
        }
        assert_eq!(decide(None, at(start)), Try);
    }

    #[test]
    fn clock_that_was_set_back_extends_the_pause_by_no_more_than_its_length() {
        let last = at(1_000_000);
        let decided = decide(Some(InterruptedAttempts { count: 2, last }), at(0));
        assert_eq!(decided, AttemptDecision::Wait(Duration::from_hours(1)));
    }

    #[test]
    fn records_count_the_ends_of_their_attempts() {
        let weigh = AttemptKey::new("1.0.0", "uid 1", &content(b"a"), ParseStep::Weigh);
        let parse = AttemptKey::new("1.0.0", "uid 1", &content(b"a"), ParseStep::Parse);
        let names = [
            (weigh.record(2), at(20)),
            (weigh.record(1), at(10)),
            (parse.record(1), at(15)),
            ("README".to_owned(), at(1)),
            ("a.txt".to_owned(), at(1)),
            (".".to_owned(), at(1)),
        ];
        let found = interrupted_by_key(names.iter().map(|(name, time)| (name.as_str(), *time)));
        let of = |count, last| InterruptedAttempts { count, last };
        assert_eq!(
            found,
            [(weigh, of(2, at(20))), (parse, of(1, at(15)))].into()
        );
    }

    #[test]
    fn new_spec_content_or_program_has_no_records() {
        let key = |program, owner, bytes| {
            AttemptKey::new(program, owner, &content(bytes), ParseStep::Parse)
        };
        let first = key("1.0.0", "uid 1", b"a");
        assert_eq!(first, key("1.0.0", "uid 1", b"a"));
        for other in [
            key("1.0.1", "uid 1", b"a"),
            key("1.0.0", "uid 2", b"a"),
            key("1.0.0", "other 1", b"a"),
            key("1.0.0", "uid 1", b"b"),
        ] {
            assert_ne!(first, other);
        }
    }
}
