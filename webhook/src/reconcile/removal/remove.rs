//! The existing objects of a deployment according to its inventory, and the requests that delete
//! them. `bundle_core::plan::removal` contains the order.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::{self, Inventory, ObjectOwnership, ObjectRecord};
use kube::Client;
use kube::api::DynamicObject;
use kube::core::metadata::PartialObjectMeta;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::api::discovery::{Apis, Kind};
use crate::reconcile::api::object::{self, ObservedObject, ReleaseResult};
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};
use crate::reconcile::inventory::present::{PresentObject, SharedPresentObject};
use crate::retry::delays;

/// Maximum number of objects in a message.
const MAX_NAMED: usize = 10;
/// Memory of one recorded object during a removal or a prune, in bytes: its entry in copies of the
/// inventory, the object with its kind and uid, and its entry in the progress.
const RECORDED_OBJECT: u64 = 2 << 10;

/// Returns the memory that a removal of `count` recorded objects needs, in bytes.
pub(in crate::reconcile) fn removal_weight(count: usize) -> u64 {
    RECORDED_OBJECT.saturating_mul(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The state of objects after their deletion was requested.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct DeletionState {
    /// The objects that no longer exist.
    pub(in crate::reconcile) gone: BTreeSet<ObjectId>,
    /// The objects whose deletion is delayed by finalizers, with these finalizers.
    pub(in crate::reconcile) held: BTreeMap<ObjectId, Vec<String>>,
}

/// Reads and removes the recorded objects of one deployment.
pub(in crate::reconcile) struct Remover<'a> {
    pub(in crate::reconcile) apis: &'a Apis,
    pub(in crate::reconcile) client: &'a Client,
    /// Client of the pod, which reads namespaces.
    pub(in crate::reconcile) own: &'a Client,
    pub(in crate::reconcile) account: &'a ServiceAccount,
    pub(in crate::reconcile) inventory: &'a Inventory,
    /// Reason of the condition that reports an error.
    pub(in crate::reconcile) reason: &'static str,
}

impl Remover<'_> {
    /// Returns the recorded objects among `keys` that exist. An object counts as deleted in three
    /// cases: its kind is no longer served, it was recorded but never created, or another object
    /// has its name.
    pub(in crate::reconcile) async fn present(
        &self,
        keys: &[String],
    ) -> Result<Vec<SharedPresentObject>, ReconcileError> {
        // With stale discovery data, objects of a changed kind would count as deleted.
        self.apis.forget_custom().await;
        let kinds = Mutex::default();
        let looks = keys.iter().map(|key| self.present_of(key, &kinds));
        let looks: Vec<_> = crate::reconcile::api::parallel::all(looks).await;
        let mut all = Vec::new();
        for look in looks {
            all.extend(look?);
        }
        all.sort_by(|a: &SharedPresentObject, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Returns the object if it exists. `kinds` caches the kinds of all objects.
    async fn present_of(
        &self,
        key: &str,
        kinds: &Mutex<HashSet<Arc<Kind>>>,
    ) -> Result<Option<SharedPresentObject>, ReconcileError> {
        let failed = |error: &kube::Error| self.failed(&format!("read {key}"), error);
        let Some((group_kind, namespace, name)) = inventory::parts(key) else {
            return Ok(None);
        };
        let kind = self.apis.preferred(&group_kind).await;
        let Some(kind) = kind.map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        let id = ObjectId {
            version: kind.resource.version.clone(),
            group: group_kind.group,
            kind: group_kind.kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let Some(record) = self.inventory.get(key) else {
            return Ok(None);
        };
        let found = self.observe(&kind, &id).await;
        let Some(found) = found.map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        let seen = ObservedObject::of(&kind, &found);
        let is_ours = match record {
            ObjectRecord::Uid(uid) => *uid == seen.uid,
            ObjectRecord::Intent(_) | ObjectRecord::Adoption(_) => {
                self.inventory.claim(key, seen.live()) == ObjectOwnership::Ours
            }
        };
        if !is_ours {
            return Ok(None);
        }
        let kind = {
            let mut kinds = kinds.lock().unwrap_or_else(PoisonError::into_inner);
            let known = kinds.get(&kind).cloned();
            known.unwrap_or_else(|| {
                let kind = Arc::new(kind);
                kinds.insert(kind.clone());
                kind
            })
        };
        Ok(Some(Arc::new(PresentObject {
            id,
            key: key.to_owned(),
            kind,
            uid: seen.uid,
            held_by: held_by(&found),
        })))
    }

    /// Returns the metadata of an object if it exists.
    pub(in crate::reconcile) async fn observe(
        &self,
        kind: &Kind,
        id: &ObjectId,
    ) -> Result<Option<PartialObjectMeta<DynamicObject>>, kube::Error> {
        let api = object::api::<DynamicObject>(self.client, kind, id.namespace.as_deref())?;
        match ByName(&api).get_metadata_opt(&id.name).await {
            Err(error) if object::is_not_found(&error) => Ok(None),
            answer => answer,
        }
    }

    pub(in crate::reconcile) fn failed(&self, doing: &str, error: &kube::Error) -> ReconcileError {
        ReconcileError::new(
            codes::install::REMOVAL_FAILED,
            self.reason,
            format!(
                "cannot {doing} as {}: {}",
                self.account.user_name(),
                object::error_message(error)
            ),
            if object::is_passing(error) {
                RetryPolicy::Soon
            } else {
                RetryPolicy::Slowly
            },
        )
    }

    /// Deletes `objects` without waiting for finalizers. Adds the objects that no longer exist to
    /// `gone`.
    pub(in crate::reconcile) async fn delete(
        &self,
        objects: &[SharedPresentObject],
        gone: &mut BTreeSet<ObjectId>,
    ) -> Result<(), ReconcileError> {
        let results: Vec<_> =
            crate::reconcile::api::parallel::all(objects.iter().map(|present| async move {
                let done =
                    object::delete(self.client, &present.kind, &present.id, &present.uid).await;
                (present, done)
            }))
            .await;
        let mut failed = Vec::new();
        for (present, done) in results {
            match done {
                Ok(true) => {
                    gone.insert(present.id.clone());
                }
                Ok(false) => {}
                Err(error) => {
                    failed.push(format!("{}: {}", present.id, object::error_message(&error)));
                }
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(ReconcileError::new(
            codes::install::REMOVAL_FAILED,
            self.reason,
            format!(
                "cannot remove objects as {}: {}",
                self.account.user_name(),
                error::joined(failed, MAX_NAMED)
            ),
            RetryPolicy::Soon,
        ))
    }

    /// Waits until the deleted `objects` no longer exist, at most until `end`. If finalizers delay
    /// the deletion of all remaining objects, waits at most until `held_end`.
    pub(in crate::reconcile) async fn until_gone(
        &self,
        objects: &[SharedPresentObject],
        (held_end, end): (Instant, Instant),
    ) -> Result<DeletionState, ReconcileError> {
        let mut pauses = delays::REMOVED.pauses();
        let mut state = DeletionState::default();
        loop {
            let gone = &state.gone;
            let waiting = objects.iter().filter(|present| !gone.contains(&present.id));
            let looks: Vec<_> =
                crate::reconcile::api::parallel::all(waiting.map(|present| async move {
                    let look = self.observe(&present.kind, &present.id).await;
                    (present, look)
                }))
                .await;
            state.held.clear();
            let mut is_held = true;
            for (present, look) in looks {
                let found =
                    look.map_err(|error| self.failed(&format!("read {}", present.id), &error))?;
                let found =
                    found.filter(|found| found.metadata.uid.as_deref() == Some(&present.uid));
                let Some(found) = found else {
                    state.gone.insert(present.id.clone());
                    continue;
                };
                let finalizers = held_by(&found);
                if finalizers.is_empty() {
                    is_held = false;
                } else {
                    state.held.insert(present.id.clone(), finalizers);
                }
            }
            let now = Instant::now();
            let is_over = now > end || is_held && now > held_end;
            if is_over || state.gone.len() == objects.len() {
                return Ok(state);
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }

    /// Removes the owner labels from `objects`. After that, the objects belong to no deployment. An
    /// object that mutating admission would change in this write keeps its labels, which have no
    /// effect without the inventory.
    pub(in crate::reconcile) async fn release(
        &self,
        objects: &[SharedPresentObject],
    ) -> Result<(), ReconcileError> {
        let results: Vec<_> =
            crate::reconcile::api::parallel::all(objects.iter().map(|present| async move {
                let done =
                    object::release(self.client, &present.kind, &present.id, &present.uid).await;
                (present, done)
            }))
            .await;
        for (present, done) in results {
            let failed = |error| self.failed(&format!("release {}", present.id), &error);
            if let ReleaseResult::Unchanged(why) = done.map_err(failed)? {
                tracing::warn!(
                    object = present.key,
                    why,
                    "an object keeps its owner labels"
                );
            }
        }
        Ok(())
    }
}

/// Returns the finalizers of an object that is being deleted. For other objects the list is empty.
fn held_by(object: &PartialObjectMeta<DynamicObject>) -> Vec<String> {
    let metadata = &object.metadata;
    let deleting = metadata.deletion_timestamp.as_ref();
    deleting.map_or_else(Vec::new, |_| {
        metadata.finalizers.clone().unwrap_or_default()
    })
}
