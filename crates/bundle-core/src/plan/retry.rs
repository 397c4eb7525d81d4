//! The policy after a failure: whether it is tried again by itself, and the pauses before that.
//! Not here: counting the failures in a row (backoff), clocks or random numbers.

use std::time::Duration;

use super::backoff;

/// The time until another attempt at what failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Something passing is in the way: soon, then less and less often, up to half a minute.
    Soon,
    /// Somebody has to do something about it, and no watch shows that it was done: up to every five minutes.
    Slowly,
    /// The same request fails each time: up to every ten minutes.
    Rarely,
    /// After this time.
    At(Duration),
    /// A change of the object, or of what it names, comes with an event.
    OnChange,
}

impl RetryPolicy {
    /// Returns the time until the next attempt after `failures` in a row, which count from 1; `None` if something has to change first.
    ///
    /// `spread` is a number from 0 to 1 that the caller drew.
    pub fn after(self, failures: u32, spread: f64) -> Option<Duration> {
        let (first, most) = match self {
            Self::Soon => (Duration::from_millis(500), Duration::from_secs(30)),
            Self::Slowly => (Duration::from_secs(2), Duration::from_secs(300)),
            Self::Rarely => (Duration::from_secs(2), Duration::from_secs(600)),
            Self::At(pause) => return Some(pause),
            Self::OnChange => return None,
        };
        Some(backoff::delay(first, most, failures, spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_limit_of_each_policy() {
        let seconds = Duration::from_secs;
        for (policy, failures, least, most) in [
            (RetryPolicy::Soon, 1, Duration::ZERO, seconds(1)),
            (RetryPolicy::Soon, 100, seconds(24), seconds(36)),
            (RetryPolicy::Slowly, 1, seconds(1), seconds(3)),
            (RetryPolicy::Slowly, 100, seconds(240), seconds(360)),
            (RetryPolicy::Rarely, 1, seconds(1), seconds(3)),
            (RetryPolicy::Rarely, 100, seconds(480), seconds(720)),
            (RetryPolicy::At(seconds(7)), 100, seconds(7), seconds(7)),
        ] {
            for spread in [0.0, 0.5, 1.0] {
                let pause = policy.after(failures, spread).unwrap();
                assert!(pause >= least && pause <= most, "{policy:?} {pause:?}");
            }
        }
    }

    #[test]
    fn attempt_that_needs_a_change_is_not_repeated_by_itself() {
        assert_eq!(RetryPolicy::OnChange.after(3, 0.5), None);
    }
}
