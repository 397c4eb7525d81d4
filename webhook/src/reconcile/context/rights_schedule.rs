//! The times of the periodic permission checks of BundleDeployments.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng as _;

/// Maximum number of BundleDeployments in the schedule. When this number is reached, the schedule
/// is cleared.
const MAX_SCHEDULED: usize = 10_000;

/// The time of the next permission check of each BundleDeployment, by uid.
#[derive(Default)]
pub(in crate::reconcile) struct RightsSchedule(Mutex<HashMap<String, Instant>>);

impl RightsSchedule {
    /// Returns the time until the next check, or zero if the check is due. If the BundleDeployment
    /// is not in the schedule, its check is due after a random part of `interval`, which
    /// distributes the load.
    pub(in crate::reconcile) fn wait(
        &self,
        uid: &str,
        now: Instant,
        interval: Duration,
    ) -> Duration {
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if due.len() >= MAX_SCHEDULED {
            due.clear();
        }
        let part = interval.mul_f64(rand::rng().random::<f64>());
        let next = *due.entry(uid.to_owned()).or_insert_with(|| now + part);
        next.saturating_duration_since(now)
    }

    /// Schedules the next check about one `interval` after `now`, the time of the last check.
    pub(in crate::reconcile) fn record_check(&self, uid: &str, now: Instant, interval: Duration) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(uid.to_owned(), now + crate::retry::jittered(interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_checked_once_per_interval_with_jitter() {
        let schedule = RightsSchedule::default();
        let (now, interval) = (Instant::now(), Duration::from_secs(600));
        assert!(schedule.wait("a", now, interval) <= interval);
        assert_eq!(schedule.wait("a", now + interval, interval), Duration::ZERO);
        schedule.record_check("a", now, interval);
        let wait = schedule.wait("a", now, interval);
        assert!(
            wait >= interval.mul_f64(0.9) && wait <= interval.mul_f64(1.1),
            "{wait:?}"
        );
    }
}
