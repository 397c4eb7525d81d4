//! The existing objects of a deployment according to its inventory, and the requests that delete
//! them. A definition is never deleted if it has foreign custom resources, which are custom
//! resources that the deployment did not install. `bundle_core::plan::removal` contains the order.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::object::CustomKind;
use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::{self, Inventory, ObjectOwnership, ObjectRecord};
use bundle_core::plan::phases::Phase;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::discovery::ApiResource;
use kube::core::metadata::PartialObjectMeta;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::api::discovery::{Apis, Kind};
use crate::reconcile::api::object::{self, ObservedObject};
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};
use crate::reconcile::inventory::namespaces::{self, NamespaceUids};
use crate::reconcile::inventory::present::{KeptObject, PresentObject, SharedPresentObject};

/// Maximum number of objects in a message.
const MAX_NAMED: usize = 10;
/// Memory of one recorded object during a removal or a prune, in bytes: its entry in copies of the
/// inventory, the object with its kind and uid, and its entry in the progress.
const RECORDED_OBJECT: u64 = 2 << 10;

/// Returns the memory that a removal of `count` recorded objects needs, in bytes.
pub(in crate::reconcile) fn removal_weight(count: usize) -> u64 {
    RECORDED_OBJECT.saturating_mul(u64::try_from(count).unwrap_or(u64::MAX))
}
/// Maximum number of custom resources of one kind in a message.
const MAX_NAMED_RESOURCES: usize = 3;

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

/// Custom resources that the deployment did not install.
#[derive(Default)]
struct ForeignResources {
    /// The foreign custom resources that are cluster-scoped, or that are in a namespace with
    /// objects of the deployment. Messages name the first of them.
    in_own_namespaces: ResourceList,
    /// The number of foreign custom resources in other namespaces. A namespace that was recreated
    /// since the installation is another namespace, because it may belong to another owner.
    in_other_namespaces: usize,
}

/// Custom resources of one kind.
#[derive(Default)]
struct ResourceList {
    count: usize,
    /// The first custom resources, at most [`MAX_NAMED_RESOURCES`].
    first: Vec<String>,
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

    /// Returns the definitions among `objects` that have custom resources which the deployment did
    /// not install.
    pub(in crate::reconcile) async fn in_use(
        &self,
        objects: &[SharedPresentObject],
    ) -> Result<Vec<KeptObject>, ReconcileError> {
        let mut kept = Vec::new();
        let namespaces = self.inventory.namespaces_of_objects();
        for present in objects
            .iter()
            .filter(|present| Phase::of(&present.id.group, &present.id.kind) == Phase::Crds)
        {
            let definition = object::read(self.client, &present.kind, None, &present.id.name)
                .await
                .map_err(|error| self.failed(&format!("read {}", present.id), &error))?;
            let Some(definition) = definition
                .filter(|found| found.metadata.uid.as_deref() == Some(present.uid.as_str()))
            else {
                continue;
            };
            let Some(custom) = serde_json::to_value(&definition)
                .ok()
                .and_then(|value| CustomKind::of(&value))
            else {
                continue;
            };
            let foreign = self.foreign(&custom, &namespaces).await?;
            if let Some(why) = foreign.why(&custom.plural) {
                kept.push(KeptObject {
                    id: present.id.clone(),
                    why: why.into(),
                });
            }
        }
        Ok(kept)
    }

    /// Returns the foreign custom resources of a definition. `recorded` contains the names of the
    /// namespaces with recorded objects.
    async fn foreign(
        &self,
        custom: &CustomKind,
        recorded: &BTreeSet<String>,
    ) -> Result<ForeignResources, ReconcileError> {
        let mut foreign = ForeignResources::default();
        let Some(version) = custom.versions.first() else {
            return Ok(foreign);
        };
        let kind = Kind {
            resource: ApiResource {
                group: custom.group.clone(),
                version: version.clone(),
                api_version: format!("{}/{version}", custom.group),
                kind: custom.kind.clone(),
                plural: custom.plural.clone(),
            },
            namespaced: custom.namespaced,
        };
        let mut in_recorded = BTreeMap::<String, ResourceList>::new();
        let listed = object::list(self.client, &kind, |id, uid| {
            let key = id.to_string();
            if self.inventory.owns(&key, uid) {
                return;
            }
            match id.namespace {
                None => foreign.in_own_namespaces.add(key),
                Some(name) if recorded.contains(&name) => {
                    in_recorded.entry(name).or_default().add(key);
                }
                Some(_) => foreign.in_other_namespaces += 1,
            }
        })
        .await;
        match listed {
            Ok(()) => {}
            Err(error) if object::is_not_found(&error) => return Ok(ForeignResources::default()),
            // If the list fails, custom resources could be lost, so the removal fails.
            Err(error) => return Err(self.failed(&format!("list {}", custom.plural), &error)),
        }
        // Only the namespaces of these resources are read. They are read after the list, so that a
        // namespace that was recreated before the list has another uid.
        let names = in_recorded.keys().map(String::as_str).collect();
        let live = namespaces::uids(self.own, names)
            .await
            .map_err(|error| ReconcileError::api("read the namespaces", self.reason, &error))?;
        foreign.add_recorded(in_recorded, &live, self.inventory);
        Ok(foreign)
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
        let mut pause = Duration::from_millis(20);
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
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(300));
        }
    }

    /// Removes the owner labels from `objects`. After that, the objects belong to no deployment.
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
            done.map_err(|error| self.failed(&format!("release {}", present.id), &error))?;
        }
        Ok(())
    }
}

impl ResourceList {
    fn add(&mut self, key: String) {
        self.count += 1;
        if self.first.len() < MAX_NAMED_RESOURCES {
            self.first.push(key);
        }
    }

    fn append(&mut self, other: Self) {
        self.count += other.count;
        let free = MAX_NAMED_RESOURCES.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(free));
    }
}

impl ForeignResources {
    /// Adds the resources in namespaces with recorded objects. `live` contains the uids of the
    /// namespaces that exist.
    fn add_recorded(
        &mut self,
        resources: BTreeMap<String, ResourceList>,
        live: &NamespaceUids,
        inventory: &Inventory,
    ) {
        for (name, list) in resources {
            let uid = live.get(&name);
            if uid.is_some_and(|uid| inventory.owns_namespace(&name, uid)) {
                self.in_own_namespaces.append(list);
            } else {
                self.in_other_namespaces += list.count;
            }
        }
    }

    /// Returns the reason why the definition of `plural` is not deleted. Returns `None` if there
    /// are no foreign custom resources. Resources in other namespaces are counted and not named.
    fn why(&self, plural: &str) -> Option<String> {
        let own = &self.in_own_namespaces;
        let count = own.count + self.in_other_namespaces;
        if count == 0 {
            return None;
        }
        let mut parts = own.first.clone();
        if own.count > own.first.len() {
            parts.push("…".to_owned());
        }
        if self.in_other_namespaces > 0 {
            parts.push(format!("{} in other namespaces", self.in_other_namespaces));
        }
        Some(format!("{count} {plural} exist ({})", parts.join(", ")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_resources_of_other_namespaces_are_counted_and_not_named() {
        let foreign = |named: &[&str], here, elsewhere| ForeignResources {
            in_own_namespaces: ResourceList {
                count: here,
                first: named.iter().map(|&name| name.to_owned()).collect(),
            },
            in_other_namespaces: elsewhere,
        };
        for (foreign, why) in [
            (foreign(&[], 0, 0), None),
            (
                foreign(&["Queue.x/a/b"], 1, 0),
                Some("1 queues exist (Queue.x/a/b)"),
            ),
            (
                foreign(&[], 0, 2),
                Some("2 queues exist (2 in other namespaces)"),
            ),
            (
                foreign(&["a", "b", "c"], 5, 1),
                Some("6 queues exist (a, b, c, …, 1 in other namespaces)"),
            ),
        ] {
            assert_eq!(foreign.why("queues").as_deref(), why);
        }
    }

    #[test]
    fn custom_resources_of_recreated_namespaces_are_counted_and_not_named() {
        let mut inventory = Inventory::new("shop");
        for name in ["gone", "recreated", "shop", "shop-2"] {
            inventory.record_namespace(name, format!("{name}-1"));
        }
        let live = NamespaceUids::from(
            [
                ("recreated", "recreated-2"),
                ("shop", "shop-1"),
                ("shop-2", "shop-2-1"),
            ]
            .map(|(name, uid)| (name.to_owned(), uid.to_owned())),
        );
        let mut resources = BTreeMap::<String, ResourceList>::new();
        for (namespace, count) in [("gone", 1), ("recreated", 2), ("shop", 2), ("shop-2", 4)] {
            let list = resources.entry(namespace.to_owned()).or_default();
            for number in 0..count {
                list.add(format!("Queue.x/{namespace}/{number}"));
            }
        }
        let mut foreign = ForeignResources::default();
        foreign.add_recorded(resources, &live, &inventory);
        assert_eq!(
            foreign.why("queues").as_deref(),
            Some(
                "9 queues exist (Queue.x/shop/0, Queue.x/shop/1, Queue.x/shop-2/0, …, 3 in other namespaces)"
            )
        );
    }
}
