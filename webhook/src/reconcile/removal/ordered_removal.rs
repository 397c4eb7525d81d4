//! Ordered deletion of objects, for removals and prunes. `bundle_core::plan::removal` contains the
//! order and the messages. The module `remove` sends the requests.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal::{NextRemoval, RemovalProgress};

use crate::reconcile::error::ReconcileError;
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::removal::remove::{DeletionState, Remover};

/// Maximum time that one reconcile waits for deletions. Then the reconcile reports the remaining
/// objects.
const DELETION_WAIT_LIMIT: Duration = Duration::from_secs(5);
/// Maximum time that one step waits for objects whose deletion is delayed by finalizers. Then the
/// next step deletes other objects.
const FINALIZER_WAIT_LIMIT: Duration = Duration::from_secs(1);

/// An ordered deletion of recorded objects, with its progress.
pub(in crate::reconcile) struct OrderedRemoval<'a> {
    objects: BTreeMap<ObjectId, SharedPresentObject>,
    progress: RemovalProgress,
    /// The inventory. The records of deleted objects are removed from it.
    inventory: &'a mut Inventory,
    /// True if foreign objects are searched directly before the deletion of Namespaces and
    /// CustomResourceDefinitions.
    has_search: bool,
}

impl<'a> OrderedRemoval<'a> {
    /// Creates the removal of the objects `present`. The objects in `kept` are not deleted.
    pub(in crate::reconcile) fn new(
        present: Vec<SharedPresentObject>,
        kept: Vec<KeptObject>,
        inventory: &'a mut Inventory,
    ) -> Self {
        let held_by = present
            .iter()
            .map(|present| (present.id.clone(), present.held_by.clone()));
        let kept = kept.into_iter().map(|kept| (kept.id, kept.why));
        let progress = RemovalProgress::new(held_by, kept);
        let objects = present.into_iter();
        Self {
            objects: objects
                .map(|present| (present.id.clone(), present))
                .collect(),
            progress,
            inventory,
            has_search: false,
        }
    }

    /// Searches for foreign objects directly before the deletion of Namespaces and
    /// CustomResourceDefinitions, because earlier deletions take time. Namespaces and definitions
    /// with foreign objects are not deleted.
    pub(in crate::reconcile) fn with_search(mut self) -> Self {
        self.has_search = true;
        self
    }

    /// Returns the objects that remain, and the reasons why they remain.
    pub(in crate::reconcile) fn progress(&self) -> &RemovalProgress {
        &self.progress
    }

    /// Deletes the objects step by step, until the remaining objects must wait for other objects or
    /// for finalizers. Returns the objects that still existed at the time limit although no
    /// finalizer delays their deletion.
    pub(in crate::reconcile) async fn remove(
        &mut self,
        remover: &Remover<'_>,
    ) -> Result<Vec<ObjectId>, ReconcileError> {
        let mut end = Instant::now() + DELETION_WAIT_LIMIT;
        loop {
            match self.progress.next() {
                NextRemoval::Delete(step) => {
                    if self.has_search {
                        let start = Instant::now();
                        let is_found = Box::pin(self.keep_objects_in_use(remover, &step)).await?;
                        // The search is not a wait for deletions.
                        end += start.elapsed();
                        if is_found {
                            continue;
                        }
                    }
                    let in_deletion = self.delete(remover, &step, end).await?;
                    if !in_deletion.is_empty() {
                        return Ok(in_deletion);
                    }
                }
                NextRemoval::Await(held) if Instant::now() <= end => {
                    let state = remover.until_gone(&self.of(&held), (end, end)).await?;
                    self.observe(state);
                }
                NextRemoval::Await(_) | NextRemoval::End => return Ok(Vec::new()),
            }
        }
    }

    /// Deletes the objects of one step. Returns the objects that still exist although no finalizer
    /// delays their deletion.
    async fn delete(
        &mut self,
        remover: &Remover<'_>,
        step: &[ObjectId],
        end: Instant,
    ) -> Result<Vec<ObjectId>, ReconcileError> {
        let mut state = DeletionState::default();
        let deleted = remover.delete(&self.of(step), &mut state.gone).await;
        self.observe(state);
        deleted?;
        let held_end = end.min(Instant::now() + FINALIZER_WAIT_LIMIT);
        let state = remover.until_gone(&self.of(step), (held_end, end)).await?;
        self.observe(state);
        Ok(self.progress.in_deletion(step))
    }

    /// Searches for foreign objects of the Namespaces and CustomResourceDefinitions in `step`, and
    /// keeps those with foreign objects. Returns true if at least one of them is kept.
    async fn keep_objects_in_use(
        &mut self,
        remover: &Remover<'_>,
        step: &[ObjectId],
    ) -> Result<bool, ReconcileError> {
        let objects = self.of(step);
        let mut kept = remover.in_use(&objects).await?;
        kept.extend(Box::pin(remover.occupied(&objects)).await?);
        let is_found = !kept.is_empty();
        let kept = kept.into_iter().map(|kept| (kept.id, kept.why));
        self.progress.keep(kept);
        Ok(is_found)
    }

    fn observe(&mut self, state: DeletionState) {
        for id in &state.gone {
            if let Some(present) = self.objects.get(id) {
                self.inventory.remove(&present.key);
            }
        }
        self.progress.observe(&state.gone, state.held);
    }

    /// Returns those objects in `ids` that still exist.
    fn of(&self, ids: &[ObjectId]) -> Vec<SharedPresentObject> {
        let left = self.progress.remaining();
        ids.iter()
            .filter(|id| left.contains(id))
            .filter_map(|id| self.objects.get(id).cloned())
            .collect()
    }
}

/// Returns those objects in `present` whose deletion requires a permission check. For all other
/// objects, the deletion was already requested, and finalizers delay the deletion.
pub(in crate::reconcile) fn not_held(present: &[SharedPresentObject]) -> Vec<SharedPresentObject> {
    let asked = present.iter().filter(|present| present.held_by.is_empty());
    asked.cloned().collect()
}

/// Divides `objects` into the objects in `kept` and all other objects. The order stays the same.
pub(in crate::reconcile) fn divided<'k>(
    objects: Vec<SharedPresentObject>,
    kept: impl IntoIterator<Item = &'k KeptObject>,
) -> (Vec<SharedPresentObject>, Vec<SharedPresentObject>) {
    // Each of the two lists can have all objects of a BundleDeployment.
    let kept: HashSet<&ObjectId> = kept.into_iter().map(|kept| &kept.id).collect();
    let is_kept = |present: &SharedPresentObject| kept.contains(&present.id);
    objects.into_iter().partition(is_kept)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::core::discovery::ApiResource;

    use super::*;
    use crate::reconcile::api::discovery::Kind;
    use crate::reconcile::inventory::present::PresentObject;

    /// Returns Namespaces with the numbers `0..count` as names.
    fn namespaces(count: usize) -> Vec<SharedPresentObject> {
        let kind = Arc::new(Kind {
            resource: ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&()),
            namespaced: false,
        });
        let namespace = |number: usize| {
            let id = ObjectId {
                group: String::new(),
                version: "v1".to_owned(),
                kind: "Namespace".to_owned(),
                namespace: None,
                name: number.to_string(),
            };
            Arc::new(PresentObject {
                key: id.to_string(),
                id,
                kind: kind.clone(),
                uid: "ours".to_owned(),
                held_by: Vec::new(),
            })
        };
        (0..count).map(namespace).collect()
    }

    #[test]
    fn many_kept_objects_are_found_without_a_search_for_each_object() {
        let objects = namespaces(50_000);
        let kept = |present: &SharedPresentObject| KeptObject {
            id: present.id.clone(),
            why: "no".to_owned().into(),
        };
        let kept: Vec<KeptObject> = objects.iter().skip(1).map(kept).collect();
        let (kept, others) = divided(objects, &kept);
        assert_eq!(kept.len(), 49_999);
        assert_eq!(
            (kept[0].key.as_str(), kept[1].key.as_str()),
            ("Namespace/1", "Namespace/2")
        );
        assert_eq!(others.len(), 1);
        assert_eq!(others[0].key, "Namespace/0");
    }
}
