//! Expired Jobs: Jobs that Kubernetes deleted because of their TTL (`ttlSecondsAfterFinished`).
//! This module records expired Jobs, so that they are not created again. The rule is in
//! `bundle_core::plan::jobs`.

use std::collections::{BTreeMap, BTreeSet};

use bundle_api::names::reason;
use bundle_core::plan::jobs;

use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::status::condition_set;

impl DeploymentReconcile<'_> {
    /// Returns true if `item` is recorded as an expired Job of this content.
    pub(in crate::reconcile) fn has_expired(
        &self,
        request: &InstallRequest<'_>,
        item: &PreparedObject,
    ) -> bool {
        let runs = &self.inventory.job_runs;
        runs.has_expired(&item.key, request.digest())
    }

    /// Finds and records expired Jobs among the drifted objects. The deletion of an expired Job
    /// does not count as drift.
    pub(in crate::reconcile) async fn expire_drifted_jobs(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let drifted = self.ctx.states.drifted(&self.name).into_keys();
        let drifted: BTreeSet<String> = drifted.filter(|key| jobs::is_job_key(key)).collect();
        if drifted.is_empty() {
            return Ok(());
        }
        let items = self.objects_of(request, &drifted).await?;
        self.expire_drifted_among(request, &items).await
    }

    /// Finds and records expired Jobs among those `items` that have drifted.
    pub(in crate::reconcile) async fn expire_drifted_among(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let drifted = self.ctx.states.drifted(&self.name);
        let drifted = items.iter().filter(|item| drifted.contains_key(&item.key));
        if self.expire_jobs(request, drifted).await?.is_empty() {
            return Ok(());
        }
        let fields = self.ctx.states.fields_digest(&self.name);
        self.record_fields(fields).await
    }

    /// Finds and records expired Jobs among `items`, and removes these Jobs from `items`. Called
    /// before content is applied again, and after a restart.
    pub(in crate::reconcile) async fn expire_unseen_jobs(
        &mut self,
        request: &InstallRequest<'_>,
        items: &mut Vec<PreparedObject>,
    ) -> Result<(), ReconcileError> {
        let expired = self.expire_jobs(request, items.iter()).await?;
        items.retain(|item| !expired.contains(&item.key));
        Ok(())
    }

    /// Records the Jobs among `items` that have expired, and returns their object keys.
    async fn expire_jobs<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: impl Iterator<Item = &'i PreparedObject> + Send,
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
            let look = object::observe(request.client, &item.kind, &item.id).await;
            let look = look.map_err(|error| {
                ReconcileError::api("read a Job", reason::RECONCILE_FAILED, &error)
            })?;
            if look.is_some() {
                continue;
            }
            let last = ctx.states.job_ends.last(uid);
            if ctx.watches.observes(&name, &item.key) {
                // The watch has not reported the deletion of the Job yet. The event of the deletion
                // starts another reconcile.
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
        ctx.states.remove_states(&name, &expired);
        Ok(expired)
    }

    /// Returns the Jobs of the installed content that failed before they expired, each with the
    /// reason why the Job counts as unhealthy.
    pub(in crate::reconcile) fn failed_jobs(&self) -> BTreeMap<String, String> {
        let Some(installed) = self.installed_content() else {
            return BTreeMap::new();
        };
        let failed = self.inventory.job_runs.failed(&installed.digest);
        failed
            .map(|key| (key.to_owned(), jobs::EXPIRED_JOB_FAILED.to_owned()))
            .collect()
    }
}
