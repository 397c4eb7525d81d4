//! Jobs with a TTL, which Kubernetes deletes after they finish. Each such Job runs once for each
//! content, and its deletion by Kubernetes is not drift.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::ObjectId;
use crate::plan::drift::FieldsEntry;

/// Tolerance for differences between the clocks of API server, controller manager and pod, in
/// seconds.
const CLOCK_TOLERANCE: i64 = 2;

/// Last observed state of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedJobState {
    /// The Job was never observed.
    NeverObserved,
    /// The Job has not finished.
    Running,
    /// The Job completed or failed at this time, in seconds since 1970.
    Finished(i64),
}

/// Reason why a Job is unhealthy if it failed before it expired.
pub const EXPIRED_JOB_FAILED: &str =
    "the Job failed, and was deleted after its TTL; the Job runs again only with other content";

/// Returns true if group and kind are `batch` and `Job`.
pub fn is_job(group: &str, kind: &str) -> bool {
    (group, kind) == ("batch", "Job")
}

/// Returns `spec.ttlSecondsAfterFinished` of an object in seconds; `None` if the object is not a
/// Job or has no TTL.
pub fn ttl(id: &ObjectId, value: &Value) -> Option<i64> {
    is_job(&id.group, &id.kind).then_some(())?;
    value.pointer("/spec/ttlSecondsAfterFinished")?.as_i64()
}

/// Returns the state of a Job, from its metadata: the Job controller writes `completionTime` when
/// the Job completes, and `conditions` when the Job fails.
///
/// `managedFields` does not show which conditions a Job has. A suspended Job has `conditions` too,
/// but no `startTime`. A resumed Job has `conditions` too, and also has `active` Pods (`syncJob` of
/// the Job controller).
pub fn end_of<'a>(entries: impl IntoIterator<Item = FieldsEntry<'a>>) -> ObservedJobState {
    entries
        .into_iter()
        .filter(|entry| entry.subresource == "status")
        .filter(|entry| {
            let has = |field: &str| entry.fields["f:status"].get(field).is_some();
            has("f:completionTime") || has("f:conditions") && has("f:startTime") && !has("f:active")
        })
        .filter_map(|entry| entry.time)
        .max()
        .map_or(ObservedJobState::Running, ObservedJobState::Finished)
}

/// Returns true if a finished Job has failed, from its metadata: the Job controller writes
/// `completionTime` only when a Job completes.
///
/// Source: `validateJobStatus` of Kubernetes' `pkg/apis/batch/validation` ("cannot set
/// completionTime when there is no Complete=True condition").
pub fn has_failed<'a>(entries: impl IntoIterator<Item = FieldsEntry<'a>>) -> bool {
    let mut entries = entries
        .into_iter()
        .filter(|entry| entry.subresource == "status");
    !entries.any(|entry| entry.fields["f:status"].get("f:completionTime").is_some())
}

/// Returns true if a Job with this `status` has completed or failed.
pub fn has_ended(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|condition| condition["status"] == "True")
        .any(|condition| condition["type"] == "Complete" || condition["type"] == "Failed")
}

/// Returns true if a missing Job has expired: Kubernetes deleted the Job because it had finished
/// and its TTL had passed. A Job that was never observed is treated as expired, because a Job must
/// not run twice. `ttl` and `now` are in seconds.
pub fn has_expired(ttl: i64, end: ObservedJobState, now: i64) -> bool {
    match end {
        ObservedJobState::Running => false,
        ObservedJobState::NeverObserved => true,
        ObservedJobState::Finished(at) => {
            at.saturating_add(ttl) <= now.saturating_add(CLOCK_TOLERANCE)
        }
    }
}

/// Record of one Job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JobRun {
    /// Digest of the content from which the Job was last applied.
    digest: String,
    /// True if the Job finished and was deleted after its TTL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_expired: bool,
    /// True if the Job had failed when it expired. False if the Job had completed, or if the end of
    /// the Job was not observed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_failed: bool,
}

/// Content from which each Job was last applied, by key of the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobRuns(BTreeMap<String, JobRun>);

impl JobRuns {
    /// Returns true if no Job is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that the Jobs among `keys` were applied from the content `digest`, and removes the
    /// records of other content.
    pub fn applied<'a>(&mut self, digest: &str, keys: impl IntoIterator<Item = &'a str>) {
        self.0.retain(|_, run| run.digest == digest);
        for key in keys.into_iter().filter(|key| is_job_key(key)) {
            let run = JobRun {
                digest: digest.to_owned(),
                ..JobRun::default()
            };
            self.0.insert(key.to_owned(), run);
        }
    }

    /// Returns true if the Job `key` was applied from the content `digest`.
    pub fn has_run(&self, key: &str, digest: &str) -> bool {
        self.0.get(key).is_some_and(|run| run.digest == digest)
    }

    /// Records that the Job `key` has expired. `has_failed` is true if the Job had failed before it
    /// expired.
    pub fn expire(&mut self, key: &str, has_failed: bool) {
        if let Some(run) = self.0.get_mut(key) {
            run.is_expired = true;
            run.has_failed = has_failed;
        }
    }

    /// Returns the keys of Jobs of the content `digest` that had failed when they expired.
    pub fn failed<'a>(&'a self, digest: &'a str) -> impl Iterator<Item = &'a str> {
        let failed = self
            .0
            .iter()
            .filter(move |(_, run)| run.digest == digest && run.is_expired && run.has_failed);
        failed.map(|(key, _)| key.as_str())
    }

    /// Returns true if the Job `key` of the content `digest` has run and expired.
    pub fn has_expired(&self, key: &str, digest: &str) -> bool {
        self.0
            .get(key)
            .is_some_and(|run| run.digest == digest && run.is_expired)
    }
}

/// Returns true if `key` is the key of a Job.
pub fn is_job_key(key: &str) -> bool {
    crate::plan::applyset::parts(key).is_some_and(|(kind, _, _)| is_job(&kind.group, &kind.kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deletion_counts_as_expiry_depending_on_ttl_and_end() {
        use ObservedJobState::{Finished, NeverObserved, Running};
        for (ttl, end, now, expected) in [
            (60, Running, 1000, false),
            (60, NeverObserved, 1000, true),
            (60, Finished(100), 160, true),
            (60, Finished(100), 158, true),
            (60, Finished(100), 157, false),
            (0, Finished(100), 100, true),
            (i64::MAX, Finished(100), 1000, false),
        ] {
            assert_eq!(
                has_expired(ttl, end, now),
                expected,
                "{ttl:?} {end:?} {now}"
            );
        }
    }

    #[test]
    fn end_is_read_from_the_managed_fields_entry_of_the_status() {
        let started = json!({"f:status": {"f:active": {}, "f:startTime": {}}});
        let complete = json!({"f:status": {"f:completionTime": {}, "f:conditions": {}}});
        let failed = json!({"f:status": {"f:conditions": {}, "f:failed": {}, "f:startTime": {}}});
        let suspended = json!({"f:status": {"f:conditions": {}, "f:failed": {}}});
        let resumed = json!({"f:status": {"f:active": {}, "f:conditions": {}, "f:startTime": {}}});
        let spec = json!({"f:spec": {"f:conditions": {}}});
        let entry = |fields, subresource| FieldsEntry {
            manager: "kube-controller-manager",
            operation: "Update",
            subresource,
            api_version: "batch/v1",
            time: Some(100),
            fields,
        };
        for (fields, subresource, expected) in [
            (&started, "status", ObservedJobState::Running),
            (&complete, "status", ObservedJobState::Finished(100)),
            (&failed, "status", ObservedJobState::Finished(100)),
            (&suspended, "status", ObservedJobState::Running),
            (&resumed, "status", ObservedJobState::Running),
            (&complete, "", ObservedJobState::Running),
            (&spec, "", ObservedJobState::Running),
        ] {
            assert_eq!(end_of([entry(fields, subresource)]), expected, "{fields}");
        }
        assert_eq!(end_of([]), ObservedJobState::Running);
    }

    #[test]
    fn job_has_ended_once_it_is_complete_or_failed() {
        for (kind, status, expected) in [
            ("Complete", "True", true),
            ("Failed", "True", true),
            ("Complete", "False", false),
            ("Suspended", "True", false),
            ("FailureTarget", "True", false),
        ] {
            let found = json!({"conditions": [{"type": kind, "status": status}]});
            assert_eq!(has_ended(&found), expected, "{kind} {status}");
        }
        assert!(!has_ended(&json!({})));
    }

    #[test]
    fn finished_job_without_completion_time_has_failed() {
        let complete = json!({"f:status": {"f:completionTime": {}, "f:conditions": {}}});
        let failed = json!({"f:status": {"f:conditions": {}, "f:failed": {}}});
        let entry = |fields, subresource| FieldsEntry {
            manager: "kube-controller-manager",
            operation: "Update",
            subresource,
            api_version: "batch/v1",
            time: Some(100),
            fields,
        };
        assert!(!has_failed([entry(&complete, "status")]));
        assert!(has_failed([entry(&failed, "status")]));
        assert!(has_failed([entry(&complete, ""), entry(&failed, "status")]));
        assert!(!has_failed([
            entry(&failed, "status"),
            entry(&complete, "status")
        ]));
    }

    #[test]
    fn failure_of_an_expired_job_stays_recorded_until_other_content_is_applied() {
        let (one, two) = ("Job.batch/x/one", "Job.batch/x/two");
        let mut runs = JobRuns::default();
        runs.applied("sha256:a", [one, two]);
        runs.expire(one, true);
        runs.expire(two, false);
        let text = serde_json::to_string(&runs).unwrap();
        let mut runs: JobRuns = serde_json::from_str(&text).unwrap();
        let failed = |runs: &JobRuns, digest: &str| -> Vec<String> {
            runs.failed(digest).map(str::to_owned).collect()
        };
        assert_eq!(failed(&runs, "sha256:a"), [one]);
        assert!(failed(&runs, "sha256:b").is_empty());
        runs.applied("sha256:b", [one]);
        assert!(failed(&runs, "sha256:b").is_empty());
        // Encoding of earlier versions of this project.
        let earlier = r#"{"Job.batch/x/one":{"digest":"sha256:a","isExpired":true}}"#;
        let earlier: JobRuns = serde_json::from_str(earlier).unwrap();
        assert!(earlier.has_expired(one, "sha256:a") && failed(&earlier, "sha256:a").is_empty());
    }

    #[test]
    fn run_is_recorded_for_one_content() {
        let mut runs = JobRuns::default();
        runs.applied("sha256:a", ["Job.batch/x/one", "ConfigMap/x/two"]);
        assert!(runs.has_run("Job.batch/x/one", "sha256:a"));
        assert!(!runs.has_run("ConfigMap/x/two", "sha256:a"));
        runs.expire("Job.batch/x/one", false);
        runs.expire("Job.batch/x/other", true);
        assert!(runs.has_expired("Job.batch/x/one", "sha256:a"));
        assert!(!runs.has_expired("Job.batch/x/one", "sha256:b"));
        // Another object was applied again, and the record of the Job is unchanged.
        runs.applied("sha256:a", ["ConfigMap/x/two"]);
        assert!(runs.has_expired("Job.batch/x/one", "sha256:a"));
        runs.applied("sha256:b", []);
        assert!(runs.is_empty());
    }
}
