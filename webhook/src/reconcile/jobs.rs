//! Jobs that their TTL deletes: what was seen of a deletion, and which Jobs of a content are not created again.
//! The rule is in `bundle_core::plan::jobs`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bundle_api::names::reason;
use bundle_core::plan::jobs::{self, JobEnd};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::deployment::Turn;
use super::items::Item;
use super::place::Placing;
use super::trouble::Trouble;
use super::{object, said};

/// Most Jobs that are remembered.
const MOST: usize = 10_000;

/// States of Jobs when a watch last saw them, by uid.
#[derive(Default)]
pub(super) struct JobEnds(Mutex<HashMap<String, JobEnd>>);

impl JobEnds {
    /// Remembers how far the object `key` is, if it is a Job.
    pub(super) fn saw(&self, key: &str, metadata: &ObjectMeta) {
        let Some(uid) = metadata.uid.clone().filter(|_| jobs::is_job_key(key)) else {
            return;
        };
        let end = jobs::end_of(object::entries(metadata));
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of Jobs that are gone are not needed any more.
        if ends.len() >= MOST {
            ends.clear();
        }
        ends.insert(uid, end);
    }

    fn end(&self, uid: &str) -> JobEnd {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(uid).copied().unwrap_or(JobEnd::Unseen)
    }
}

impl Turn<'_> {
    /// Returns whether `item` is a Job of this content that has run, and that its TTL has deleted.
    pub(super) fn has_expired(&self, placing: &Placing<'_>, item: &Item) -> bool {
        let runs = &self.inventory.job_runs;
        runs.has_expired(&item.key, placing.digest())
    }

    /// Before drift is corrected or reported: Jobs among the drifted objects that have expired are not drift.
    pub(super) async fn expire_drifted_jobs(
        &mut self,
        placing: &Placing<'_>,
    ) -> Result<(), Trouble> {
        let drifted = self.room.books.drifted(&self.name);
        if !drifted.keys().any(|key| jobs::is_job_key(key)) {
            return Ok(());
        }
        let items = self.items(placing).await?;
        self.expire_drifted_among(placing, &items).await
    }

    /// The same, where the `items` of the content are at hand.
    pub(super) async fn expire_drifted_among(
        &mut self,
        placing: &Placing<'_>,
        items: &[Item],
    ) -> Result<(), Trouble> {
        let drifted = self.room.books.drifted(&self.name);
        let drifted = items.iter().filter(|item| drifted.contains_key(&item.key));
        if self.expire_jobs(placing, drifted).await?.is_empty() {
            return Ok(());
        }
        let fields = self.room.books.fields_digest(&self.name);
        self.record_fields(fields).await
    }

    /// Before content is applied again, or found again after a restart: takes those Jobs out of `items` that have run from it and expired meanwhile.
    pub(super) async fn expire_unseen_jobs(
        &mut self,
        placing: &Placing<'_>,
        items: &mut Vec<Item>,
    ) -> Result<(), Trouble> {
        let expired = self.expire_jobs(placing, items.iter()).await?;
        items.retain(|item| !expired.contains(&item.key));
        Ok(())
    }

    /// Records which Jobs among `items` have expired, and returns their keys.
    async fn expire_jobs<'i>(
        &mut self,
        placing: &Placing<'_>,
        items: impl Iterator<Item = &'i Item> + Send,
    ) -> Result<BTreeSet<String>, Trouble> {
        let now = said::now().as_second();
        let (room, name) = (self.room, self.name.clone());
        let mut expired = BTreeSet::new();
        for item in items {
            let Some(ttl) = jobs::ttl(&item.id, &item.value) else {
                continue;
            };
            let recorded = self.inventory.uid(&item.key);
            let runs = &self.inventory.job_runs;
            let Some(uid) = recorded.filter(|_| runs.has_run(&item.key, placing.digest())) else {
                continue;
            };
            let look = object::look(placing.client, &item.kind, &item.id).await;
            let look = look
                .map_err(|error| Trouble::api("look at a Job", reason::RECONCILE_FAILED, &error))?;
            if look.is_some() {
                continue;
            }
            if room.watches.seen_of(&name).contains_key(&item.key) {
                // The watch has not told of the deletion yet, nor how far the Job was; it wakes us again when it does.
                room.books.settled(&name, &item.key);
            } else if jobs::has_expired(ttl, room.books.job_ends.end(uid), now) {
                tracing::info!(deployment = name, job = item.key, "has run and expired");
                expired.insert(item.key.clone());
            }
        }
        if !expired.is_empty() {
            let mut inventory = (*self.inventory).clone();
            for key in &expired {
                inventory.job_runs.expire(key);
            }
            self.save_inventory(inventory).await?;
            room.books.expired(&name, &expired);
        }
        Ok(expired)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_deletions_of_jobs_that_were_seen_tell_how_they_ended() {
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
        jobs.saw("Job.batch/x/one", &metadata("one"));
        jobs.saw("ConfigMap/x/two", &metadata("two"));
        assert_eq!(jobs.end("one"), JobEnd::Finished(1_795_348_800));
        assert_eq!(jobs.end("two"), JobEnd::Unseen);
    }
}
