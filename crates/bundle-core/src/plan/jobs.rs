//! Jobs that Kubernetes deletes once they have finished: each runs once for each content, and is not created again as drift.
//! Not here: watching or looking at Jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::drift::Entry;
use super::replace::is_job;
use crate::object::ObjectId;

/// Seconds by which the clocks of the API server, the controller manager and the pod may differ.
const CLOCK_TOLERANCE: i64 = 2;

/// State of a Job when it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// Nobody saw it.
    Unseen,
    /// It had not finished.
    Running,
    /// It had completed or failed at this time, in seconds since 1970.
    Finished(i64),
}

/// Returns `spec.ttlSecondsAfterFinished` of an object in the content, in seconds; `None` if it is no Job or has none.
pub fn ttl(id: &ObjectId, value: &Value) -> Option<i64> {
    is_job(&id.group, &id.kind).then_some(())?;
    value.pointer("/spec/ttlSecondsAfterFinished")?.as_i64()
}

/// Returns the state of a Job by its metadata: the Job controller writes `completionTime` as it completes, and `conditions` as it fails.
///
/// `conditions` is one field, whatever is in it, so that of a suspended Job looks the same. But a suspended Job has no `startTime`, and one that runs again has
/// `active` Pods (`syncJob` of the Job controller).
pub fn end_of<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> JobEnd {
    entries
        .into_iter()
        .filter(|entry| entry.subresource == "status")
        .filter(|entry| {
            let has = |field: &str| entry.fields["f:status"].get(field).is_some();
            has("f:completionTime") || has("f:conditions") && has("f:startTime") && !has("f:active")
        })
        .filter_map(|entry| entry.time)
        .max()
        .map_or(JobEnd::Running, JobEnd::Finished)
}

/// Returns whether a Job that has finished has failed, by its metadata: the Job controller writes `completionTime` only if it completes.
///
/// Source: `validateJobStatus` of Kubernetes' `pkg/apis/batch/validation` ("cannot set completionTime when there is no Complete=True condition").
pub fn has_failed<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> bool {
    let mut entries = entries
        .into_iter()
        .filter(|entry| entry.subresource == "status");
    !entries.any(|entry| entry.fields["f:status"].get("f:completionTime").is_some())
}

/// Returns whether a Job with this `status` has completed or failed.
pub fn has_ended(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|condition| condition["status"] == "True")
        .any(|condition| condition["type"] == "Complete" || condition["type"] == "Failed")
}

/// Returns whether Kubernetes deleted a Job with this TTL because it had finished, as far as that can be told. A deletion that nobody saw counts as such: a Job that
/// has run must not run again.
pub fn has_expired(ttl: i64, end: JobEnd, now: i64) -> bool {
    match end {
        JobEnd::Running => false,
        JobEnd::Unseen => true,
        JobEnd::Finished(at) => at.saturating_add(ttl) <= now.saturating_add(CLOCK_TOLERANCE),
    }
}

/// Record of one Job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JobRun {
    /// Digest of the content that it was last applied from.
    digest: String,
    /// True if it has finished and was deleted by its TTL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_expired: bool,
    /// True if it had failed by then. False if it had completed, or nobody saw its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_failed: bool,
}

/// The content that each Job was last applied from, by key of the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobRuns(BTreeMap<String, JobRun>);

impl JobRuns {
    /// Returns whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that the Jobs among `keys` were applied from the content `digest`, and forgets those of other content.
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

    /// Returns whether the Job `key` was applied from the content `digest`.
    pub fn has_run(&self, key: &str, digest: &str) -> bool {
        self.0.get(key).is_some_and(|run| run.digest == digest)
    }

    /// Records that the Job `key` has expired, and whether it had failed by then.
    pub fn expire(&mut self, key: &str, has_failed: bool) {
        if let Some(run) = self.0.get_mut(key) {
            run.is_expired = true;
            run.has_failed = has_failed;
        }
    }

    /// Returns the Jobs of the content `digest` that had failed when they expired.
    pub fn failed<'a>(&'a self, digest: &'a str) -> impl Iterator<Item = &'a str> {
        let failed = self
            .0
            .iter()
            .filter(move |(_, run)| run.digest == digest && run.is_expired && run.has_failed);
        failed.map(|(key, _)| key.as_str())
    }

    /// Returns whether the Job `key` of the content `digest` has run and expired.
    pub fn has_expired(&self, key: &str, digest: &str) -> bool {
        self.0
            .get(key)
            .is_some_and(|run| run.digest == digest && run.is_expired)
    }
}

/// Returns whether an object with this key is a Job.
pub fn is_job_key(key: &str) -> bool {
    super::applyset::parts(key).is_some_and(|(kind, _, _)| is_job(&kind.group, &kind.kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deletion_is_an_expiry_by_ttl_and_end() {
        use JobEnd::{Finished, Running, Unseen};
        for (ttl, end, now, expected) in [
            (60, Running, 1000, false),
            (60, Unseen, 1000, true),
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
    fn end_is_read_from_the_entry_of_the_status() {
        let started = json!({"f:status": {"f:active": {}, "f:startTime": {}}});
        let complete = json!({"f:status": {"f:completionTime": {}, "f:conditions": {}}});
        let failed = json!({"f:status": {"f:conditions": {}, "f:failed": {}, "f:startTime": {}}});
        let suspended = json!({"f:status": {"f:conditions": {}, "f:failed": {}}});
        let resumed = json!({"f:status": {"f:active": {}, "f:conditions": {}, "f:startTime": {}}});
        let spec = json!({"f:spec": {"f:conditions": {}}});
        let entry = |fields, subresource| Entry {
            manager: "kube-controller-manager",
            operation: "Update",
            subresource,
            api_version: "batch/v1",
            time: Some(100),
            fields,
        };
        for (fields, subresource, expected) in [
            (&started, "status", JobEnd::Running),
            (&complete, "status", JobEnd::Finished(100)),
            (&failed, "status", JobEnd::Finished(100)),
            (&suspended, "status", JobEnd::Running),
            (&resumed, "status", JobEnd::Running),
            (&complete, "", JobEnd::Running),
            (&spec, "", JobEnd::Running),
        ] {
            assert_eq!(end_of([entry(fields, subresource)]), expected, "{fields}");
        }
        assert_eq!(end_of([]), JobEnd::Running);
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
    fn failure_is_told_by_the_missing_time_of_completion() {
        let complete = json!({"f:status": {"f:completionTime": {}, "f:conditions": {}}});
        let failed = json!({"f:status": {"f:conditions": {}, "f:failed": {}}});
        let entry = |fields, subresource| Entry {
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
    fn failure_is_remembered_after_the_job_has_expired_until_other_content_comes() {
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
        // As earlier versions wrote it.
        let earlier = r#"{"Job.batch/x/one":{"digest":"sha256:a","isExpired":true}}"#;
        let earlier: JobRuns = serde_json::from_str(earlier).unwrap();
        assert!(earlier.has_expired(one, "sha256:a") && failed(&earlier, "sha256:a").is_empty());
    }

    #[test]
    fn run_is_remembered_for_one_content() {
        let mut runs = JobRuns::default();
        runs.applied("sha256:a", ["Job.batch/x/one", "ConfigMap/x/two"]);
        assert!(runs.has_run("Job.batch/x/one", "sha256:a"));
        assert!(!runs.has_run("ConfigMap/x/two", "sha256:a"));
        runs.expire("Job.batch/x/one", false);
        runs.expire("Job.batch/x/other", true);
        assert!(runs.has_expired("Job.batch/x/one", "sha256:a"));
        assert!(!runs.has_expired("Job.batch/x/one", "sha256:b"));
        // Another object was applied again: the Job is as it was.
        runs.applied("sha256:a", ["ConfigMap/x/two"]);
        assert!(runs.has_expired("Job.batch/x/one", "sha256:a"));
        runs.applied("sha256:b", []);
        assert!(runs.is_empty());
    }
}
