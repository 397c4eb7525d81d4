//! Delays before the restoration of an object that another actor changes repeatedly, and after
//! failed restores. The caller provides the time.

use std::time::Duration;

use super::delays;

/// Number of consecutive restores without a delay.
const IMMEDIATE_RESTORES: u32 = 10;
/// Time without a restore after which the history of an object is reset. This time is longer than
/// the longest delay between two restores, which is 30 s.
const RESET_INTERVAL: Duration = Duration::from_secs(60);

/// Failure to restore an object. The kind of failure determines the maximum delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreFailure {
    /// The API server is busy or unreachable. Maximum delay: 30 s.
    Passing,
    /// The API server rejected the request, for example because of missing permissions. Maximum
    /// delay: 5 min.
    Refused,
    /// The API server rejects these values as invalid. Maximum delay: 10 min.
    Invalid,
}

impl RestoreFailure {
    fn pause(self, failures: u32) -> Duration {
        let backoff = match self {
            Self::Passing => delays::SOON,
            Self::Refused => delays::SLOWLY,
            Self::Invalid => delays::RARELY,
        };
        backoff.delay(failures)
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
    /// is due at most 30 s after the last attempt.
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
        let contested = match self.restores {
            times if times <= IMMEDIATE_RESTORES || self.is_quiet(now) => Duration::ZERO,
            times => delays::CONTESTED.delay(times - IMMEDIATE_RESTORES),
        };
        let failure = self
            .failures
            .map_or(Duration::ZERO, |(failure, times)| failure.pause(times));
        contested
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
        self.restores > IMMEDIATE_RESTORES && !self.is_quiet(now)
    }

    /// Returns true if the history is old enough to be reset.
    pub fn is_quiet(&self, now: Duration) -> bool {
        self.failures.is_none() && now.saturating_sub(self.last) >= RESET_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let contested = restored(100);
        assert!(contested.is_contested(START));
        assert!(!contested.is_contested(START + RESET_INTERVAL));
        let next = contested.restored(START + RESET_INTERVAL);
        assert_eq!(next.wait(START + RESET_INTERVAL), Duration::ZERO);
        assert!(!next.is_contested(START + RESET_INTERVAL));
        assert!(!failed(RestoreFailure::Invalid, 1).is_quiet(START + RESET_INTERVAL * 9));
    }
}
