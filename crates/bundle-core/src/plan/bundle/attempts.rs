//! Attempts to parse content. Each is recorded from its start to its end, under a name that this
//! module makes. A record of an earlier process means that the process ended during the attempt.
//! Such content is tried once more without other content, and after another end only after a pause:
//! an end can have another cause, so no content is given up for ever.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::content::ContentId;

/// Number of ends of the process after which a pause comes before the next attempt.
pub const ENDS_BEFORE_PAUSE: u32 = 2;
/// The first pause. It doubles with each further end.
pub const FIRST_PAUSE: Duration = Duration::from_hours(1);
/// The longest pause.
pub const MAX_PAUSE: Duration = Duration::from_hours(24);

/// Step that reads the whole content. Each step has its own records, because the end of the process
/// during one step does not imply the same for the other step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseStep {
    /// The memory of the content is estimated.
    Weigh,
    /// The content is parsed and rendered.
    Parse,
}

/// Decision on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptDecision {
    /// Other content can be in memory.
    Try,
    /// No other content must be in memory. Content that is not the cause then reaches the end of
    /// the attempt, and its record is removed.
    TryAlone,
    /// The content is not tried before this time has passed.
    Wait(Duration),
}

/// The ends of the process during the attempts of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEnds {
    /// Number of ends.
    pub count: u32,
    /// Start of the last attempt.
    pub last: SystemTime,
}

/// Returns the decision on content during whose attempts the process ended so often. If the clock
/// was set back, the pause starts at `now`.
pub fn decide(ends: Option<ProcessEnds>, now: SystemTime) -> AttemptDecision {
    let Some(ends) = ends else {
        return AttemptDecision::Try;
    };
    let Some(further) = ends.count.checked_sub(ENDS_BEFORE_PAUSE) else {
        return AttemptDecision::TryAlone;
    };
    let factor = 2_u32.checked_pow(further);
    let pause = factor.and_then(|factor| FIRST_PAUSE.checked_mul(factor));
    let pause = pause.map_or(MAX_PAUSE, |pause| pause.min(MAX_PAUSE));
    let passed = now.duration_since(ends.last).unwrap_or_default();
    match pause.checked_sub(passed) {
        None | Some(Duration::ZERO) => AttemptDecision::TryAlone,
        Some(left) => AttemptDecision::Wait(left),
    }
}

/// Identity of the attempts of one step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey(String);

impl AttemptKey {
    /// Returns the key for `content` of the object with this uid and generation (`owner`). Another
    /// version of the `program` has other keys.
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

/// Returns the ends of the process for each key, from names and times of the records that earlier
/// processes left. Other names are ignored.
pub fn ends_by_key<'a>(
    records: impl IntoIterator<Item = (&'a str, SystemTime)>,
) -> BTreeMap<AttemptKey, ProcessEnds> {
    let mut ends = BTreeMap::new();
    for (name, written) in records {
        let parts = name.split_once('.');
        let Some((key, Ok(number))) = parts.map(|(key, number)| (key, number.parse::<u32>()))
        else {
            continue;
        };
        let first = ProcessEnds {
            count: 0,
            last: written,
        };
        let found = ends.entry(AttemptKey(key.to_owned())).or_insert(first);
        found.count = found.count.max(number);
        found.last = found.last.max(written);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Digest, Reference};
    use crate::review::Source;

    fn content(bytes: &[u8]) -> ContentId {
        let reference: Reference = "registry.example.com/web:1".parse().unwrap();
        let source = Source::Image {
            reference,
            pull_secret: None,
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
            let decided = decide(Some(ProcessEnds { count, last }), at(start + passed));
            assert_eq!(decided, expected, "{count} ends, {passed} s");
        }
        assert_eq!(decide(None, at(start)), Try);
    }

    #[test]
    fn clock_that_was_set_back_extends_the_pause_by_no_more_than_its_length() {
        let last = at(1_000_000);
        let decided = decide(Some(ProcessEnds { count: 2, last }), at(0));
        assert_eq!(decided, AttemptDecision::Wait(FIRST_PAUSE));
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
        let found = ends_by_key(names.iter().map(|(name, time)| (name.as_str(), *time)));
        let of = |count, last| ProcessEnds { count, last };
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
