//! Pauses before another attempt at what failed, and before an object is restored that somebody keeps changing.
//! Not here: clocks and random numbers; the caller brings both.

use std::time::Duration;

/// Restores in a row that are not delayed.
const AT_ONCE: u32 = 10;
/// The pause after them; it doubles with each restore.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before an object is restored that was restored before.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After so long without a restore of an object, the next one is the first again. Longer than the longest pause.
const QUIET: Duration = Duration::from_secs(60);

/// Doubles from `first` with each failure in a row up to `most`, then spreads by up to a fifth either way.
///
/// `spread` is a number from 0 to 1 that the caller drew; `failures` counts from 1.
pub fn delay(first: Duration, most: Duration, failures: u32, spread: f64) -> Duration {
    doubled(first, most, failures).mul_f64(0.8 + 0.4 * spread.clamp(0.0, 1.0))
}

/// Pauses between attempts that follow each other at once: each is twice as long as the one before, up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pauses {
    next: Duration,
    most: Duration,
}

impl Pauses {
    /// Pauses from `first` to `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    /// Returns the next pause.
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

/// The failed attempts in a row at one work on one generation of an object.
///
/// Times are durations since a moment that the caller chooses once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailedAttempts {
    generation: i64,
    count: u32,
    /// When the next attempt is due; `None` if something has to change first.
    due: Option<Duration>,
}

impl FailedAttempts {
    /// After an attempt failed at `now`. `pause` gives the time until the next attempt after so many failures; `None` if something has to change first.
    ///
    /// An attempt that was made before it was due, because something in the cluster changed, neither makes the pause longer nor puts the next attempt off. A new
    /// generation of the object begins anew: its failures are those of the new spec.
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

    /// Returns the time until the next attempt; `None` if something has to change first.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(now))
    }
}

/// Reason for which an object could not be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreFailure {
    /// The API server is busy or out of reach: up to 30 s.
    Passing,
    /// It is refused, for example for want of rights: up to five minutes.
    Refused,
    /// The API server cannot store the object with these values: up to ten minutes.
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

/// The restores of one object and the attempts that failed. It counts what the reconciler did, and not how often the object was changed.
///
/// Times are durations since a moment that the caller chooses once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreBackoff {
    restores: u32,
    failures: Option<(RestoreFailure, u32)>,
    last: Duration,
}

impl RestoreBackoff {
    /// After the object was restored.
    #[must_use]
    pub fn restored(self, now: Duration) -> Self {
        let restores = if self.is_quiet(now) { 0 } else { self.restores };
        Self {
            restores: restores.saturating_add(1),
            failures: None,
            last: now,
        }
    }

    /// After an attempt to restore the object failed.
    #[must_use]
    pub fn failed(self, failure: RestoreFailure, now: Duration) -> Self {
        let before = self.failures.map_or(0, |(_, times)| times);
        Self {
            failures: Some((failure, before.saturating_add(1))),
            last: now,
            ..self
        }
    }

    /// After somebody changed the object: an attempt that failed may succeed now, and is due within [`LONGEST_PAUSE`] of the last one.
    #[must_use]
    pub fn changed(self) -> Self {
        Self {
            failures: self
                .failures
                .map(|(_, times)| (RestoreFailure::Passing, times)),
            ..self
        }
    }

    /// After the object was deleted, or the values changed that are applied: earlier failures count no more.
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

    /// Returns whether the last attempt failed.
    pub fn has_failed(&self) -> bool {
        self.failures.is_some()
    }

    /// Returns whether somebody keeps changing the object back, so that it is restored after a pause.
    pub fn is_fight(&self, now: Duration) -> bool {
        self.restores > AT_ONCE && !self.is_quiet(now)
    }

    /// Returns whether nothing happened for so long that the history counts no more.
    pub fn is_quiet(&self, now: Duration) -> bool {
        self.failures.is_none() && now.saturating_sub(self.last) >= QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_stays_below_the_limit_and_spreads() {
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
    fn pauses_double_up_to_the_limit() {
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
    fn restore_waits_by_its_own_history() {
        use RestoreFailure::{Invalid, Passing, Refused};
        // History, milliseconds since the last attempt, milliseconds to wait.
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
    fn restore_is_the_first_again_after_a_quiet_minute() {
        let fight = restored(100);
        assert!(fight.is_fight(START));
        assert!(!fight.is_fight(START + QUIET));
        let next = fight.restored(START + QUIET);
        assert_eq!(next.wait(START + QUIET), Duration::ZERO);
        assert!(!next.is_fight(START + QUIET));
        assert!(!failed(RestoreFailure::Invalid, 1).is_quiet(START + QUIET * 9));
    }

    #[test]
    fn attempts_before_the_time_neither_lengthen_the_pause_nor_put_it_off() {
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
    fn failures_of_another_generation_are_the_first() {
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
    fn attempt_is_due_sooner_if_its_failure_passes_sooner() {
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
