//! Backoff after failures, and before the restoration of an object that another actor changes
//! repeatedly. The caller provides time and random values.

use std::time::Duration;

/// Number of consecutive restores without a delay.
const AT_ONCE: u32 = 10;
/// First delay after the restores without delay. The delay doubles with each restore.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest delay before an object is restored again.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time without a restore after which the history of an object is reset. This time is longer than
/// the longest delay.
const QUIET: Duration = Duration::from_secs(60);

/// Returns a delay that doubles from `first` with each consecutive failure, up to `most`, with a
/// jitter of ±20 %.
///
/// `spread` is a random number from 0 to 1. `failures` counts from 1.
pub fn delay(first: Duration, most: Duration, failures: u32, spread: f64) -> Duration {
    doubled(first, most, failures).mul_f64(0.8 + 0.4 * spread.clamp(0.0, 1.0))
}

/// Delays between consecutive attempts. Each delay is twice the previous delay, up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pauses {
    next: Duration,
    most: Duration,
}

impl Pauses {
    /// Returns delays from `first` to `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    /// Returns the next delay.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = doubled(pause, self.most, 2);
        pause
    }
}

fn doubled(first: Duration, most: Duration, times: u32) -> Duration {
    first
        .saturating_mul(1_u32 << times.saturating_sub(1).min(20))
        .min(most)
}

/// Consecutive failed attempts for one generation of an object.
///
/// Times are durations since a fixed point in time that the caller chooses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailedAttempts {
    generation: i64,
    count: u32,
    /// Time of the next attempt; `None` if only a change triggers the next attempt.
    due: Option<Duration>,
}

impl FailedAttempts {
    /// Returns the state after an attempt failed at `now`. `pause` returns the delay after this
    /// number of failures. `pause` returns `None` if the next attempt must wait for a change.
    ///
    /// An attempt before its due time, after a change in the cluster, neither increases the delay
    /// nor postpones the next attempt. A new generation of the object resets the count.
    #[must_use]
    pub fn failed(
        self,
        generation: i64,
        now: Duration,
        pause: impl FnOnce(u32) -> Option<Duration>,
    ) -> Self {
        let former = if self.generation == generation {
            self
        } else {
            Self::default()
        };
        let due = former.due.filter(|due| now < *due);
        let count = former.count.saturating_add(u32::from(due.is_none())).max(1);
        let next = pause(count).map(|pause| now.saturating_add(pause));
        Self {
            generation,
            count,
            due: next.map(|next| due.map_or(next, |due| due.min(next))),
        }
    }

    /// Returns the time until the next attempt; `None` if only a change triggers the next attempt.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(now))
    }
}

/// Failure to restore an object. The kind of failure selects the longest delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreFailure {
    /// The API server is busy or unreachable. Longest delay: 30 s.
    Passing,
    /// The API server rejected the request, for example because of missing permissions. Longest
    /// delay: 5 min.
    Refused,
    /// The API server rejects these values as invalid. Longest delay: 10 min.
    Invalid,
}

impl RestoreFailure {
    fn pause(self, failures: u32) -> Duration {
        let (first, most) = match self {
            Self::Passing => (Duration::from_millis(500), Duration::from_secs(30)),
            Self::Refused => (Duration::from_secs(2), Duration::from_secs(300)),
            Self::Invalid => (Duration::from_secs(2), Duration::from_secs(600)),
        };
        doubled(first, most, failures)
    }
}

/// Restores of one object, and failed attempts to restore it. This type counts the actions of the
/// reconciler, not the changes by other actors.
///
/// Times are durations since a fixed point in time that the caller chooses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreBackoff {
    restores: u32,
    failures: Option<(RestoreFailure, u32)>,
    last: Duration,
}

impl RestoreBackoff {
    /// Returns the state after the object was restored.
    #[must_use]
    pub fn restored(self, now: Duration) -> Self {
        let restores = if self.is_quiet(now) { 0 } else { self.restores };
        Self {
            restores: restores.saturating_add(1),
            failures: None,
            last: now,
        }
    }

    /// Returns the state after a failed attempt to restore the object.
    #[must_use]
    pub fn failed(self, failure: RestoreFailure, now: Duration) -> Self {
        let before = self.failures.map_or(0, |(_, times)| times);
        Self {
            failures: Some((failure, before.saturating_add(1))),
            last: now,
            ..self
        }
    }

    /// Returns the state after another actor changed the object. A new attempt may now succeed, and
    /// is due at most [`LONGEST_PAUSE`] after the last attempt.
    #[must_use]
    pub fn changed(self) -> Self {
        Self {
            failures: self
                .failures
                .map(|(_, times)| (RestoreFailure::Passing, times)),
            ..self
        }
    }

    /// Returns the state after the object was deleted, or after its desired values changed. Earlier
    /// failures no longer delay the next attempt.
    #[must_use]
    pub fn without_failures(self) -> Self {
        Self {
            failures: None,
            ..self
        }
    }

    /// Returns the time until the object may be restored.
    pub fn wait(&self, now: Duration) -> Duration {
        let fight = match self.restores {
            times if times <= AT_ONCE || self.is_quiet(now) => Duration::ZERO,
            times => doubled(FIRST_PAUSE, LONGEST_PAUSE, times - AT_ONCE),
        };
        let failure = self
            .failures
            .map_or(Duration::ZERO, |(failure, times)| failure.pause(times));
        fight
            .max(failure)
            .saturating_sub(now.saturating_sub(self.last))
    }

    /// Returns true if the last attempt failed.
    pub fn has_failed(&self) -> bool {
        self.failures.is_some()
    }

    /// Returns true if another actor changes the object repeatedly, so that its restoration is
    /// delayed.
    pub fn is_contested(&self, now: Duration) -> bool {
        self.restores > AT_ONCE && !self.is_quiet(now)
    }

    /// Returns true if the history is old enough to be reset.
    pub fn is_quiet(&self, now: Duration) -> bool {
        self.failures.is_none() && now.saturating_sub(self.last) >= QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_limit_with_jitter() {
        let at = |failures, spread| {
            delay(
                Duration::from_secs(1),
                Duration::from_secs(60),
                failures,
                spread,
            )
        };
        assert_eq!(at(1, 0.5), Duration::from_secs(1));
        assert_eq!(at(3, 0.5), Duration::from_secs(4));
        assert_eq!(at(40, 0.5), Duration::from_secs(60));
        assert_eq!(at(1, 0.0), Duration::from_millis(800));
        assert!(at(u32::MAX, 1.0) <= Duration::from_secs(72));
    }

    #[test]
    fn delays_double_up_to_the_limit() {
        let mut pauses = Pauses::new(Duration::from_millis(50), Duration::from_millis(150));
        let found: Vec<u128> = (0..4).map(|_| pauses.next_pause().as_millis()).collect();
        assert_eq!(found, [50, 100, 150, 150]);
    }

    const START: Duration = Duration::from_secs(1_000);

    fn restored(times: u32) -> RestoreBackoff {
        (0..times).fold(RestoreBackoff::default(), |backoff, _| {
            backoff.restored(START)
        })
    }

    fn failed(failure: RestoreFailure, times: u32) -> RestoreBackoff {
        (0..times).fold(RestoreBackoff::default(), |backoff, _| {
            backoff.failed(failure, START)
        })
    }

    #[test]
    fn restore_delay_depends_on_the_history_of_the_object() {
        use RestoreFailure::{Invalid, Passing, Refused};
        // Columns: previous attempts, milliseconds since the last attempt, milliseconds to wait.
        let table = [
            (RestoreBackoff::default(), 0, 0),
            (restored(1), 0, 0),
            (restored(10), 0, 0),
            (restored(11), 0, 200),
            (restored(12), 0, 400),
            (restored(12), 150, 250),
            (restored(18), 0, 25_600),
            (restored(19), 0, 30_000),
            (restored(1_000), 0, 30_000),
            (restored(1_000), 29_999, 1),
            (restored(1_000), 59_999, 0),
            (failed(Passing, 1), 0, 500),
            (failed(Passing, 40), 0, 30_000),
            (failed(Refused, 1), 0, 2_000),
            (failed(Refused, 40), 0, 300_000),
            (failed(Invalid, 3), 0, 8_000),
            (failed(Invalid, 40), 0, 600_000),
            (failed(Invalid, 40), 599_000, 1_000),
            (failed(Invalid, 40).changed(), 0, 30_000),
            (failed(Invalid, 40).changed(), 30_000, 0),
            (failed(Invalid, 40).without_failures(), 0, 0),
            (restored(12).changed(), 0, 400),
            (restored(12).without_failures(), 0, 400),
            (restored(12).failed(Passing, START), 0, 500),
            (failed(Invalid, 40).restored(START), 0, 0),
        ];
        for (backoff, since, expected) in table {
            let now = START + Duration::from_millis(since);
            let wait = backoff.wait(now);
            assert_eq!(wait, Duration::from_millis(expected), "{backoff:?} {since}");
        }
    }

    #[test]
    fn history_of_restores_is_reset_after_a_quiet_minute() {
        let fight = restored(100);
        assert!(fight.is_contested(START));
        assert!(!fight.is_contested(START + QUIET));
        let next = fight.restored(START + QUIET);
        assert_eq!(next.wait(START + QUIET), Duration::ZERO);
        assert!(!next.is_contested(START + QUIET));
        assert!(!failed(RestoreFailure::Invalid, 1).is_quiet(START + QUIET * 9));
    }

    #[test]
    fn early_attempts_neither_increase_nor_postpone_the_delay() {
        let pause = |count: u32| Some(Duration::from_secs(2) * 2_u32.pow(count - 1));
        let first = FailedAttempts::default().failed(1, START, pause);
        assert_eq!(first.wait(START), Some(Duration::from_secs(2)));
        let mut attempts = first;
        for millis in (0..2_000).step_by(100) {
            let now = START + Duration::from_millis(millis);
            attempts = attempts.failed(1, now, pause);
            assert_eq!(attempts, first, "{millis} ms");
        }
        let second = attempts.failed(1, START + Duration::from_secs(2), pause);
        assert_eq!(
            second.wait(START + Duration::from_secs(2)),
            Some(Duration::from_secs(4))
        );
    }

    #[test]
    fn new_generation_resets_the_number_of_failures() {
        let pause = |count: u32| Some(Duration::from_secs(u64::from(count)));
        let mut attempts = FailedAttempts::default();
        let mut now = START;
        for _ in 0..20 {
            attempts = attempts.failed(1, now, pause);
            now += attempts.wait(now).unwrap();
        }
        assert_eq!(
            attempts.failed(1, now, pause).wait(now),
            Some(Duration::from_secs(21))
        );
        assert_eq!(
            attempts.failed(2, now, pause).wait(now),
            Some(Duration::from_secs(1))
        );
    }

    #[test]
    fn earlier_due_time_of_two_failures_counts() {
        let slowly = |_| Some(Duration::from_secs(300));
        let soon = |_| Some(Duration::from_secs(1));
        let never = |_| None;
        let attempts = FailedAttempts::default().failed(1, START, slowly);
        let now = START + Duration::from_secs(10);
        assert_eq!(
            attempts.failed(1, now, soon).wait(now),
            Some(Duration::from_secs(1))
        );
        assert_eq!(
            attempts.failed(1, now, slowly).wait(now),
            Some(Duration::from_secs(290))
        );
        let stopped = attempts.failed(1, now, never);
        assert_eq!(stopped.wait(now), None);
        assert_eq!(
            stopped.failed(1, now, soon).wait(now),
            Some(Duration::from_secs(1))
        );
    }
}
