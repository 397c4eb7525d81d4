//! Jobs that their TTL deletes: records how they ended, and does not create them again. The rule is
//! in `bundle_core::plan::jobs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bundle_api::names::reason;
use bundle_core::plan::jobs::{self, JobEnd};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::reconcile::api::object;
use crate::reconcile::content::items::Item;
use crate::reconcile::deployment::state::DeploymentReconcile;
use crate::reconcile::deployment::state::InstallRequest;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::status::condition_set;

/// Reason why an expired Job is unhealthy.
const EXPIRED_JOB_FAILED: &str =
    "the Job failed, and its TTL has deleted it; it runs again with other content";
/// Maximum number of Jobs in memory.
const MAX_JOBS: usize = 10_000;

/// The last observed state of a Job.
#[derive(Debug, Clone, Copy)]
struct ObservedJob {
    end: JobEnd,
    /// True if the Job had finished with a failure.
    has_failed: bool,
}

/// States of Jobs, by uid.
#[derive(Default)]
pub(in crate::reconcile) struct JobEnds(Mutex<HashMap<String, ObservedJob>>);

impl JobEnds {
    /// Records the state of the object `key` if it is a Job.
    pub(in crate::reconcile) fn record(&self, key: &str, metadata: &ObjectMeta) {
        let Some(uid) = metadata.uid.clone().filter(|_| jobs::is_job_key(key)) else {
            return;
        };
        let seen = ObservedJob {
            end: jobs::end_of(object::entries(metadata)),
            has_failed: jobs::has_failed(object::entries(metadata)),
        };
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Entries of deleted Jobs are never removed one by one.
        if ends.len() >= MAX_JOBS {
            ends.clear();
        }
        ends.insert(uid, seen);
    }

    /// Returns the last state of the Job with this uid. An end that was not observed is unknown.
    fn last(&self, uid: &str) -> ObservedJob {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(uid).copied().unwrap_or(ObservedJob {
            end: JobEnd::Unseen,
            has_failed: false,
        })
    }
}

impl DeploymentReconcile<'_> {
    /// Returns true if `item` is a Job of this content that has run and was deleted by its TTL.
    pub(in crate::reconcile) fn has_expired(
        &self,
        request: &InstallRequest<'_>,
        item: &Item,
    ) -> bool {
        let runs = &self.inventory.job_runs;
        runs.has_expired(&item.key, request.digest())
    }

    /// Finds expired Jobs among the drifted objects. They are not drift.
    pub(in crate::reconcile) async fn expire_drifted_jobs(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let drifted = self.ctx.states.drifted(&self.name).into_keys();
        let drifted: BTreeSet<String> = drifted.filter(|key| jobs::is_job_key(key)).collect();
        if drifted.is_empty() {
            return Ok(());
        }
        let items = self.items_of(request, &drifted).await?;
        self.expire_drifted_among(request, &items).await
    }

    /// Finds expired Jobs among the drifted objects of `items`.
    pub(in crate::reconcile) async fn expire_drifted_among(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[Item],
    ) -> Result<(), ReconcileError> {
        let drifted = self.ctx.states.drifted(&self.name);
        let drifted = items.iter().filter(|item| drifted.contains_key(&item.key));
        if self.expire_jobs(request, drifted).await?.is_empty() {
            return Ok(());
        }
        let fields = self.ctx.states.fields_digest(&self.name);
        self.record_fields(fields).await
    }

    /// Removes Jobs from `items` that have run and expired, before content is applied again or
    /// found after a restart.
    pub(in crate::reconcile) async fn expire_unseen_jobs(
        &mut self,
        request: &InstallRequest<'_>,
        items: &mut Vec<Item>,
    ) -> Result<(), ReconcileError> {
        let expired = self.expire_jobs(request, items.iter()).await?;
        items.retain(|item| !expired.contains(&item.key));
        Ok(())
    }

    /// Records which Jobs among `items` have expired, and returns their keys.
    async fn expire_jobs<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: impl Iterator<Item = &'i Item> + Send,
    ) -> Result<BTreeSet<String>, ReconcileError> {
        let now = condition_set::now().as_second();
        let (ctx, name) = (self.ctx, self.name.clone());
        let mut expired = BTreeMap::new();
        for item in items {
            let Some(ttl) = jobs::ttl(&item.id, &item.value) else {
                continue;
            };
            let recorded = self.inventory.uid(&item.key);
            let runs = &self.inventory.job_runs;
            let Some(uid) = recorded.filter(|_| runs.has_run(&item.key, request.digest())) else {
                continue;
            };
            let look = object::look(request.client, &item.kind, &item.id).await;
            let look = look.map_err(|error| {
                ReconcileError::api("read a Job", reason::RECONCILE_FAILED, &error)
            })?;
            if look.is_some() {
                continue;
            }
            let last = ctx.states.job_ends.last(uid);
            if ctx.watches.observed_objects(&name).contains_key(&item.key) {
                // The watch has not reported the deletion yet. Its event starts another reconcile.
                ctx.states.mark_in_place(&name, &item.key);
            } else if jobs::has_expired(ttl, last.end, now) {
                let failed = last.has_failed;
                tracing::info!(
                    deployment = name,
                    job = item.key,
                    failed,
                    "a Job has expired"
                );
                expired.insert(item.key.clone(), failed);
            }
        }
        if !expired.is_empty() {
            let mut inventory = (*self.inventory).clone();
            for (key, has_failed) in &expired {
                inventory.job_runs.expire(key, *has_failed);
            }
            self.save_inventory(inventory).await?;
        }
        let expired = expired.into_keys().collect();
        ctx.states.expired(&name, &expired);
        Ok(expired)
    }

    /// Returns the Jobs of the installed content that failed before they expired, with the reason
    /// why they are unhealthy.
    pub(in crate::reconcile) fn failed_jobs(&self) -> BTreeMap<String, String> {
        let Some(installed) = self.installed_content() else {
            return BTreeMap::new();
        };
        let failed = self.inventory.job_runs.failed(&installed.digest);
        failed
            .map(|key| (key.to_owned(), EXPIRED_JOB_FAILED.to_owned()))
            .collect()
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
        assert_eq!(one.end, JobEnd::Finished(1_795_348_800));
        assert!(!one.has_failed);
        let two = jobs.last("two");
        assert_eq!((two.end, two.has_failed), (JobEnd::Unseen, false));
    }
}
