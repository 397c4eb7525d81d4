//! Attempts to parse content. Each is recorded from its start to its end, under a name that this
//! module makes. A record of an earlier process means that the process ended during the attempt.
//! Such content is tried once more without other content, and then not again.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::content::ContentId;

/// Content is not tried again after the process ended this many times during its attempts.
pub const MAX_ENDS: u32 = 2;

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
    /// The content is not tried again.
    Reject,
}

/// Returns the decision on content during whose attempts the process ended `ends` times.
pub fn decide(ends: u32) -> AttemptDecision {
    match ends {
        0 => AttemptDecision::Try,
        1..MAX_ENDS => AttemptDecision::TryAlone,
        MAX_ENDS.. => AttemptDecision::Reject,
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

/// Returns the number of ends of the process for each key, from the names of the records that
/// earlier processes left. Other names are ignored.
pub fn ends<'a>(records: impl IntoIterator<Item = &'a str>) -> BTreeMap<AttemptKey, u32> {
    let mut ends = BTreeMap::new();
    for name in records {
        let parts = name.split_once('.');
        let Some((key, Ok(number))) = parts.map(|(key, number)| (key, number.parse::<u32>()))
        else {
            continue;
        };
        let last = ends.entry(AttemptKey(key.to_owned())).or_default();
        *last = number.max(*last);
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

    #[test]
    fn content_is_tried_then_tried_alone_then_rejected() {
        use AttemptDecision::*;
        for (ends, expected) in [
            (0, Try),
            (1, TryAlone),
            (2, Reject),
            (3, Reject),
            (u32::MAX, Reject),
        ] {
            assert_eq!(decide(ends), expected, "{ends}");
        }
    }

    #[test]
    fn records_count_the_ends_of_their_attempts() {
        let weigh = AttemptKey::new("1.0.0", "uid 1", &content(b"a"), ParseStep::Weigh);
        let parse = AttemptKey::new("1.0.0", "uid 1", &content(b"a"), ParseStep::Parse);
        let names = [
            weigh.record(1),
            weigh.record(2),
            parse.record(1),
            "README".to_owned(),
            "a.txt".to_owned(),
            ".".to_owned(),
        ];
        let found = ends(names.iter().map(String::as_str));
        assert_eq!(found, [(weigh, 2), (parse, 1)].into());
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
