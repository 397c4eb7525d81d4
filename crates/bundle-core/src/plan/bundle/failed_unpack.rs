//! The next attempt to unpack a Bundle after a failed attempt. Users other than the requester can
//! write the labels and annotations of a Bundle. After such a write, the next attempt starts only
//! after a delay.

use std::time::Duration;

/// Minimum time between a failed attempt and an attempt that a change of labels or annotations
/// triggers. Such a change can start the next attempt before its usual time.
const EARLY_ATTEMPT_DELAY: Duration = Duration::from_secs(10);

/// Failed attempt to unpack a Bundle.
///
/// Times are durations since a fixed point in time that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedUnpack {
    /// Hash of the inputs of the attempt: the meaning of the spec, the requester of the spec, and
    /// the class.
    pub inputs: u64,
    /// Hash of the labels and annotations, including the annotation with the proof.
    pub metadata: u64,
    /// Time of the failure.
    pub failed_at: Duration,
    /// Time of the next attempt; `None` if only a change triggers the next attempt.
    pub due: Option<Duration>,
}

/// The next attempt to unpack a Bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextUnpack {
    /// The attempt can start.
    Now,
    /// The attempt can start after this delay; `None` if only a change triggers the attempt.
    Later(Option<Duration>),
}

impl FailedUnpack {
    /// Returns the next attempt for the current `inputs` and `metadata`.
    pub fn next(&self, inputs: u64, metadata: u64, now: Duration) -> NextUnpack {
        if inputs != self.inputs {
            return NextUnpack::Now;
        }
        let is_changed = metadata != self.metadata;
        let early = is_changed.then(|| self.failed_at.saturating_add(EARLY_ATTEMPT_DELAY));
        let due = self.due.into_iter().chain(early).min();
        match due {
            Some(due) if due <= now => NextUnpack::Now,
            due => NextUnpack::Later(due.map(|due| due.saturating_sub(now))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000);

    #[test]
    fn only_new_inputs_start_the_next_attempt_without_its_delay() {
        let seconds = Duration::from_secs;
        let now = NextUnpack::Now;
        let later = |after| NextUnpack::Later(Some(seconds(after)));
        let on_change = NextUnpack::Later(None);
        let (soon, hourly) = (Some(5), Some(3_600));
        // Columns: delay of the next attempt, inputs, metadata, seconds since the failure, result.
        for (delay, inputs, metadata, since, expected) in [
            (soon, 1, 1, 0, later(5)),
            (soon, 1, 1, 4, later(1)),
            (soon, 1, 1, 5, now),
            (soon, 1, 2, 0, later(5)),
            (soon, 2, 1, 0, now),
            (hourly, 1, 1, 60, later(3_540)),
            (hourly, 1, 2, 0, later(10)),
            (hourly, 1, 2, 10, now),
            (hourly, 2, 2, 0, now),
            (None, 1, 1, 100_000, on_change),
            (None, 1, 2, 9, later(1)),
            (None, 1, 2, 10, now),
            (None, 2, 1, 0, now),
        ] {
            let failed = FailedUnpack {
                inputs: 1,
                metadata: 1,
                failed_at: START,
                due: delay.map(|delay| START + seconds(delay)),
            };
            let found = failed.next(inputs, metadata, START + seconds(since));
            assert_eq!(found, expected, "{delay:?} {inputs} {metadata} {since}");
        }
    }

    #[test]
    fn continuous_writes_of_annotations_start_one_attempt_in_ten_seconds() {
        let mut failed = FailedUnpack {
            inputs: 1,
            metadata: 0,
            failed_at: START,
            due: None,
        };
        let mut attempts = 0;
        // In each of 100 seconds, another user changes an annotation.
        for second in 1..=100 {
            let now = START + Duration::from_secs(second);
            if failed.next(1, second, now) == NextUnpack::Now {
                attempts += 1;
                failed = FailedUnpack {
                    metadata: second,
                    failed_at: now,
                    ..failed
                };
            }
        }
        assert_eq!(attempts, 10);
    }
}
