//! Failures in a row of each work on each object, for the time until the next attempt.
//! Not here: how long that is (error).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::api::DynamicObject;

use crate::reconcile::error::RetryPolicy;

/// Failures that are counted; beyond that all start again, which costs requests and nothing else.
const REMEMBERED: usize = 10_000;

/// Work on an object. Failures of one say nothing about another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::reconcile) enum Work {
    /// Unpacking a Bundle.
    Unpack,
    /// Installing and keeping the content of a BundleDeployment.
    Install,
    /// Removing it.
    Remove,
}

/// The failures in a row of each work, by uid of the object.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct FailureCounts(Mutex<HashMap<(Work, String), u32>>);

impl FailureCounts {
    /// Counts a failure. Returns the time until the next attempt; `None` if something has to change first.
    pub(in crate::reconcile) fn next(
        &self,
        work: Work,
        object: &DynamicObject,
        retry: RetryPolicy,
    ) -> Option<Duration> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of objects that have gone since are never told again.
        if counts.len() >= REMEMBERED {
            counts.clear();
        }
        let count = counts.entry(key(work, object)).or_default();
        *count = count.saturating_add(1);
        retry.after(*count)
    }

    /// It went well: the next failure is the first again.
    pub(in crate::reconcile) fn reset(&self, work: Work, object: &DynamicObject) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.remove(&key(work, object));
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
    fn removal_and_new_object_of_the_same_name_begin_with_the_first_pause() {
        let counts = FailureCounts::default();
        let next = |work, uid| {
            counts
                .next(work, &object(uid), RetryPolicy::Slowly)
                .unwrap()
        };
        for _ in 0..20 {
            next(Work::Install, "u-1");
        }
        assert!(next(Work::Install, "u-1") > Duration::from_secs(60));
        for (work, uid) in [(Work::Remove, "u-1"), (Work::Install, "u-2")] {
            assert!(next(work, uid) < Duration::from_secs(5), "{work:?} {uid}");
        }
        counts.reset(Work::Install, &object("u-1"));
        assert!(next(Work::Install, "u-1") < Duration::from_secs(5));
    }
}
