//! The last observed state of each Job. After a Job was deleted, its state shows how the Job ended.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bundle_core::plan::jobs::{self, ObservedJobState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::reconcile::api::object;

/// Maximum number of Jobs whose state is kept in memory.
const MAX_JOBS: usize = 10_000;

/// The last observed state of a Job.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct ObservedJob {
    pub(in crate::reconcile) end: ObservedJobState,
    /// True if the Job had finished with a failure.
    pub(in crate::reconcile) has_failed: bool,
}

/// The last observed state of each Job, by uid.
#[derive(Default)]
pub(in crate::reconcile) struct JobEnds(Mutex<HashMap<String, ObservedJob>>);

impl JobEnds {
    /// Records the state of the object with this object key, if the object is a Job. The caller
    /// must check that an inventory contains the object. Otherwise Jobs of other users could fill
    /// the map.
    pub(in crate::reconcile) fn record(&self, key: &str, metadata: &ObjectMeta) {
        let Some(uid) = metadata.uid.clone().filter(|_| jobs::is_job_key(key)) else {
            return;
        };
        let seen = ObservedJob {
            end: jobs::end_of(object::entries(metadata)),
            has_failed: jobs::has_failed(object::entries(metadata)),
        };
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Entries of deleted Jobs stay in the map. Therefore all entries are removed when the limit
        // is reached.
        if ends.len() >= MAX_JOBS {
            ends.clear();
        }
        ends.insert(uid, seen);
    }

    /// Returns the last observed state of the Job with this uid. If the Job was never observed, the
    /// state is `NeverObserved` without a failure.
    pub(in crate::reconcile) fn last(&self, uid: &str) -> ObservedJob {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(uid).copied().unwrap_or(ObservedJob {
            end: ObservedJobState::NeverObserved,
            has_failed: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
    use serde_json::json;

    use super::*;

    #[test]
    fn records_ends_of_jobs_and_ignores_other_kinds() {
        let jobs = JobEnds::default();
        let metadata = |uid: &str| ObjectMeta {
            uid: Some(uid.to_owned()),
            managed_fields: Some(vec![ManagedFieldsEntry {
                manager: Some("kube-controller-manager".to_owned()),
                operation: Some("Update".to_owned()),
                subresource: Some("status".to_owned()),
                api_version: Some("batch/v1".to_owned()),
                time: Some(Time("2026-11-22T12:00:00Z".parse().unwrap())),
                fields_v1: Some(FieldsV1(json!({"f:status": {"f:completionTime": {}}}))),
                ..ManagedFieldsEntry::default()
            }]),
            ..ObjectMeta::default()
        };
        jobs.record("Job.batch/x/one", &metadata("one"));
        jobs.record("ConfigMap/x/two", &metadata("two"));
        let one = jobs.last("one");
        assert_eq!(one.end, ObservedJobState::Finished(1_795_348_800));
        assert!(!one.has_failed);
        let two = jobs.last("two");
        assert_eq!(
            (two.end, two.has_failed),
            (ObservedJobState::NeverObserved, false)
        );
    }
}
