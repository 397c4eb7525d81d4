//! Finds the recorded objects of a BundleDeployment that exist, and sends the requests that delete
//! objects. `bundle_core::plan::removal` contains the order.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::{self, Inventory, ObjectOwnership, ObjectRecord};
use bundle_core::text::{MessageList, bounded};
use futures::StreamExt as _;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::metadata::PartialObjectMeta;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::api::discovery::{Apis, Kind};
use crate::reconcile::api::object::{self, ObservedObject};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::inventory::present::{PresentObject, SharedPresentObject};
use crate::retry::delays;

/// Maximum number of failures in a message.
const MAX_NAMED: usize = 10;
/// Maximum number of finalizers that are kept for one object.
const MAX_FINALIZERS: usize = 8;
/// Maximum length of a finalizer that is kept, in bytes.
const FINALIZER_LIMIT: usize = 128;
/// Memory that one recorded object needs during a removal or a prune, in bytes. Includes the
/// entries in copies of the inventory, the object with its kind and uid, and the entry in the
/// progress.
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
    /// The objects whose deletion is delayed by finalizers, each with these finalizers.
    pub(in crate::reconcile) held: BTreeMap<ObjectId, Vec<String>>,
}

/// Reads, deletes and releases the recorded objects of one BundleDeployment.
pub(in crate::reconcile) struct Remover<'a> {
    pub(in crate::reconcile) apis: &'a Apis,
    pub(in crate::reconcile) client: &'a Client,
    /// Client with the identity of the pod, for reading namespaces.
    pub(in crate::reconcile) own: &'a Client,
    pub(in crate::reconcile) account: &'a ServiceAccount,
    pub(in crate::reconcile) inventory: &'a Inventory,
    /// Reason of the condition that reports a failure.
    pub(in crate::reconcile) reason: &'static str,
}

impl Remover<'_> {
    /// Returns the recorded objects with the object keys `keys` that exist. A recorded object
    /// counts as missing in three cases: its kind is not served, it was never created, or its name
    /// belongs to another object.
    pub(in crate::reconcile) async fn present(
        &self,
        keys: &[String],
    ) -> Result<Vec<SharedPresentObject>, ReconcileError> {
        // With stale discovery data, objects of a kind whose served version changed would count as
        // missing.
        self.apis.forget_custom().await;
        let kinds = &Mutex::default();
        let mut looks =
            crate::reconcile::api::parallel::stream(keys.iter().map(|key| async move {
                let look = self.present_of(key, kinds).await;
                (key, look)
            }));
        let mut all = Vec::new();
        while let Some((key, look)) = looks.next().await {
            all.extend(look.map_err(|error| self.failed(&format!("read {key}"), &error))?);
        }
        all.sort_by(|a: &SharedPresentObject, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Returns the recorded object `key` if it exists. `kinds` contains one shared value for each
    /// kind.
    pub(super) async fn present_of(
        &self,
        key: &str,
        kinds: &Mutex<HashSet<Arc<Kind>>>,
    ) -> Result<Option<SharedPresentObject>, kube::Error> {
        let Some((group_kind, namespace, name)) = inventory::parts(key) else {
            return Ok(None);
        };
        let Some(kind) = self.apis.preferred(&group_kind).await? else {
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
        let Some(found) = self.observe(&kind, &id).await? else {
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

    /// Sends the deletion of each of `objects`, and does not wait for finalizers. Adds objects that
    /// no longer exist to `gone`.
    pub(in crate::reconcile) async fn delete(
        &self,
        objects: &[SharedPresentObject],
        gone: &mut BTreeSet<ObjectId>,
    ) -> Result<(), ReconcileError> {
        let mut results =
            crate::reconcile::api::parallel::stream(objects.iter().map(|present| async move {
                let done =
                    object::delete(self.client, &present.kind, &present.id, &present.uid).await;
                (present, done)
            }));
        let mut failed = MessageList::default();
        while let Some((present, done)) = results.next().await {
            match done {
                Ok(true) => {
                    gone.insert(present.id.clone());
                }
                Ok(false) => {}
                Err(error) => {
                    failed.insert(format!("{}: {}", present.id, object::error_message(&error)));
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
                failed.joined(MAX_NAMED)
            ),
            RetryPolicy::Soon,
        ))
    }

    /// Waits until the deleted `objects` no longer exist, at most until `end`. If finalizers delay
    /// the deletion of all remaining objects, waits only until `held_end`.
    pub(in crate::reconcile) async fn until_gone(
        &self,
        objects: &[SharedPresentObject],
        (held_end, end): (Instant, Instant),
    ) -> Result<DeletionState, ReconcileError> {
        let mut pauses = delays::REMOVED.pauses();
        let mut state = DeletionState::default();
        loop {
            let mut waiting = objects.to_vec();
            waiting.retain(|present| !state.gone.contains(&present.id));
            let mut looks =
                crate::reconcile::api::parallel::stream(waiting.iter().map(|present| async move {
                    let look = self.observe(&present.kind, &present.id).await;
                    (present, look)
                }));
            state.held.clear();
            let mut is_held = true;
            while let Some((present, look)) = looks.next().await {
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
}

/// Returns the first finalizers of an object that is being deleted. For all other objects, the list
/// is empty.
fn held_by(object: &PartialObjectMeta<DynamicObject>) -> Vec<String> {
    let metadata = &object.metadata;
    let deleting = metadata.deletion_timestamp.as_ref();
    deleting.map_or_else(Vec::new, |_| {
        let finalizers = metadata.finalizers.iter().flatten();
        finalizers
            .take(MAX_FINALIZERS)
            .map(|finalizer| bounded(finalizer, FINALIZER_LIMIT))
            .collect()
    })
}
