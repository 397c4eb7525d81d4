//! Delays that grow with consecutive failures, and the count of failures. The caller provides time
//! and random values.

use std::time::Duration;

/// Delay that doubles with each consecutive failure, up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Returns a delay that starts at `first` and doubles up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// Returns the delay after this number of consecutive failures, counted from 1.
    pub fn delay(self, failures: u32) -> Duration {
        self.first
            .saturating_mul(1_u32 << failures.saturating_sub(1).min(20))
            .min(self.longest)
    }

    /// Returns [`Self::delay`] with a jitter of ±20 %. `spread` is a random number from 0 to 1.
    pub fn delay_with_jitter(self, failures: u32, spread: f64) -> Duration {
        jittered(self.delay(failures), 0.2, spread)
    }

    /// Returns the delays between the attempts of one operation.
    pub const fn pauses(self) -> Pauses {
        Pauses {
            backoff: self,
            failures: 0,
        }
    }
}

/// Delays between consecutive attempts of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pauses {
    backoff: Backoff,
    failures: u32,
}

impl Pauses {
    /// Returns the next delay.
    pub fn next_pause(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.delay(self.failures)
    }
}

/// Returns `duration` with a random deviation of at most `deviation`, a fraction of the duration.
/// `spread` is a random number from 0 to 1.
pub fn jittered(duration: Duration, deviation: f64, spread: f64) -> Duration {
    duration.mul_f64(1.0 - deviation + 2.0 * deviation * spread.clamp(0.0, 1.0))
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
    /// Returns the state after an attempt failed at `now`. `pause` returns the delay for a number
    /// of consecutive failures, or `None` if the next attempt must wait for a change.
    ///
    /// A change in the cluster can start an attempt before the due time. The failure of such an
    /// early attempt does not increase the delay, and does not postpone the next attempt. A new
    /// generation of the object resets the count.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_limit_with_jitter() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let at = |failures, spread| backoff.delay_with_jitter(failures, spread);
        assert_eq!(at(1, 0.5), Duration::from_secs(1));
        assert_eq!(at(3, 0.5), Duration::from_secs(4));
        assert_eq!(at(40, 0.5), Duration::from_secs(60));
        assert_eq!(at(1, 0.0), Duration::from_millis(800));
        assert!(at(u32::MAX, 1.0) <= Duration::from_secs(72));
    }

    #[test]
    fn delays_double_up_to_the_limit() {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(150));
        let mut pauses = backoff.pauses();
        let found: Vec<u128> = (0..4).map(|_| pauses.next_pause().as_millis()).collect();
        assert_eq!(found, [50, 100, 150, 150]);
    }

    const START: Duration = Duration::from_secs(1_000);

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
