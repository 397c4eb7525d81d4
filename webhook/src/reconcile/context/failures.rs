//! Numbers of consecutive failures, by kind of work and object. `bundle_core::plan::backoff`
//! decides which failures count. `bundle_core::plan::retry` computes the delays.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bundle_core::plan::backoff::FailedAttempts;
use kube::api::DynamicObject;

use crate::reconcile::error::{self, RetryPolicy};

/// Maximum number of counters. When this number is reached, all counters are removed. The only
/// effect is that failed work is repeated earlier.
const MAX_COUNTERS: usize = 10_000;

/// Kinds of work on an object. Each kind has its own failure count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::reconcile) enum Work {
    /// Unpacking a Bundle.
    Unpack,
    /// Installing and maintaining the content of a BundleDeployment.
    Install,
    /// Removing the content of a BundleDeployment.
    Remove,
}

/// Numbers of consecutive failures, by kind of work and uid of the object.
#[derive(Debug)]
pub(in crate::reconcile) struct FailureCounts {
    start: Instant,
    attempts: Mutex<HashMap<(Work, String), FailedAttempts>>,
}

impl Default for FailureCounts {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            attempts: Mutex::default(),
        }
    }
}

impl FailureCounts {
    /// Counts a failure. Returns the delay before the next attempt. Returns `None` if only a change
    /// of the object starts the next attempt.
    pub(in crate::reconcile) fn record(
        &self,
        work: Work,
        object: &DynamicObject,
        retry: RetryPolicy,
    ) -> Option<Duration> {
        let mut attempts = self.attempts();
        // Counters of deleted objects can stay in the map. Therefore all counters are removed when
        // the limit is reached.
        if attempts.len() >= MAX_COUNTERS {
            attempts.clear();
        }
        let now = self.start.elapsed();
        let generation = object.metadata.generation.unwrap_or_default();
        let entry = attempts.entry(key(work, object)).or_default();
        *entry = entry.failed(generation, now, |failures| {
            error::retry_delay(retry, failures)
        });
        entry.wait(now)
    }

    /// Resets the failure count after a success.
    pub(in crate::reconcile) fn reset(&self, work: Work, object: &DynamicObject) {
        self.attempts().remove(&key(work, object));
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<(Work, String), FailedAttempts>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(work: Work, object: &DynamicObject) -> (Work, String) {
    (work, object.metadata.uid.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bundle_api::BundleDeployment;
    use kube::core::discovery::ApiResource;

    use super::*;

    fn object(uid: &str) -> DynamicObject {
        let resource = ApiResource::erase::<BundleDeployment>(&());
        let mut object = DynamicObject::new("web", &resource);
        object.metadata.uid = Some(uid.to_owned());
        object
    }

    #[test]
    fn removal_and_new_object_of_the_same_name_have_failures_of_their_own() {
        let counts = FailureCounts::default();
        let next = |work, uid| counts.record(work, &object(uid), RetryPolicy::Slowly);
        next(Work::Install, "u-1").unwrap();
        for (work, uid) in [(Work::Remove, "u-1"), (Work::Install, "u-2")] {
            assert_eq!(counts.attempts().len(), 1, "{work:?} {uid}");
            next(work, uid).unwrap();
            counts.reset(work, &object(uid));
        }
        counts.reset(Work::Install, &object("u-1"));
        assert!(counts.attempts().is_empty());
    }
}
