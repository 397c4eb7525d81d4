//! Retry policy after a failure: the delays before the next attempts. The number of consecutive
//! failures is counted in [`backoff`]. All growing delays of this crate are in `delays`.

pub mod backoff;
pub(crate) mod delays;
pub mod rate;
pub mod restores;
pub mod source;

use std::time::Duration;

/// Delay before the next attempt after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Temporary failure: exponential delay up to 30 s.
    Soon,
    /// Failure that a user must resolve. No watch reports when the failure is resolved, so the
    /// reconciler retries with an exponential delay up to 5 min.
    Slowly,
    /// The same request fails each time: exponential delay up to 10 min.
    Rarely,
    /// The content that a digest or commit names is missing or invalid: exponential delay from one
    /// minute up to 1 h. Attempts fail until another user, such as the publisher of the content,
    /// removes the cause.
    Hourly,
    /// Fixed delay.
    At(Duration),
    /// No delay: a change of the object, or of an object that it references, triggers the next
    /// attempt.
    OnChange,
}

impl RetryPolicy {
    /// Returns the time until the next attempt after this number of consecutive failures, counted
    /// from 1; `None` if only a change triggers the next attempt.
    ///
    /// `spread` is a random number from 0 to 1.
    pub fn after(self, failures: u32, spread: f64) -> Option<Duration> {
        let backoff = match self {
            Self::Soon => delays::SOON,
            Self::Slowly => delays::SLOWLY,
            Self::Rarely => delays::RARELY,
            Self::Hourly => delays::HOURLY,
            Self::At(pause) => return Some(pause),
            Self::OnChange => return None,
        };
        Some(backoff.delay_with_jitter(failures, spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_the_limit_of_each_policy() {
        let seconds = Duration::from_secs;
        for (policy, failures, least, most) in [
            (RetryPolicy::Soon, 1, Duration::ZERO, seconds(1)),
            (RetryPolicy::Soon, 100, seconds(24), seconds(36)),
            (RetryPolicy::Slowly, 1, seconds(1), seconds(3)),
            (RetryPolicy::Slowly, 100, seconds(240), seconds(360)),
            (RetryPolicy::Rarely, 1, seconds(1), seconds(3)),
            (RetryPolicy::Rarely, 100, seconds(480), seconds(720)),
            (RetryPolicy::Hourly, 1, seconds(30), seconds(90)),
            (RetryPolicy::Hourly, 100, seconds(2880), seconds(4320)),
            (RetryPolicy::At(seconds(7)), 100, seconds(7), seconds(7)),
        ] {
            for spread in [0.0, 0.5, 1.0] {
                let pause = policy.after(failures, spread).unwrap();
                assert!(pause >= least && pause <= most, "{policy:?} {pause:?}");
            }
        }
    }

    #[test]
    fn attempt_that_requires_a_change_is_not_repeated_after_a_delay() {
        assert_eq!(RetryPolicy::OnChange.after(3, 0.5), None);
    }
}
