//! Deleting objects in steps, each of which waits for the one before. A removal and a prune share it.
//! The order and the messages are in `bundle_core::plan::removal`, single requests in `remove`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal::{NextRemoval, RemovalProgress};

use crate::reconcile::error::ReconcileError;
use crate::reconcile::removal::remove::{KeptObject, Looked, Present, Remover};

/// Time for which one reconcile waits for objects to go, before it says which ones it waits for.
const WAIT: Duration = Duration::from_secs(5);
/// Time for which it waits for objects that finalizers hold, before it goes on with others.
const PATIENCE: Duration = Duration::from_secs(1);

/// A removal that is under way.
pub(in crate::reconcile) struct Rest<'a> {
    objects: BTreeMap<ObjectId, Present>,
    progress: RemovalProgress,
    /// Inventory from which objects are removed once they are gone.
    inventory: &'a mut Inventory,
}

impl<'a> Rest<'a> {
    /// The removal of `present`, of which some are `kept`.
    pub(in crate::reconcile) fn new(
        present: Vec<Present>,
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
        }
    }

    /// What is left, and why.
    pub(in crate::reconcile) fn progress(&self) -> &RemovalProgress {
        &self.progress
    }

    /// Deletes everything that no obstacle keeps, step by step. Returns those that are still going although no finalizer holds them; then it has run out of
    /// time.
    pub(in crate::reconcile) async fn remove(
        &mut self,
        remover: &Remover<'_>,
    ) -> Result<Vec<ObjectId>, ReconcileError> {
        let end = Instant::now() + WAIT;
        loop {
            match self.progress.next() {
                NextRemoval::Delete(step) => {
                    let going = self.delete(remover, &step, end).await?;
                    if !going.is_empty() {
                        return Ok(going);
                    }
                }
                NextRemoval::Await(held) if Instant::now() <= end => {
                    let looked = remover.until_gone(&self.of(&held), (end, end)).await?;
                    self.observe(looked);
                }
                NextRemoval::Await(_) | NextRemoval::End => return Ok(Vec::new()),
            }
        }
    }

    /// Deletes one step. Returns those that are still going and that no finalizer holds.
    async fn delete(
        &mut self,
        remover: &Remover<'_>,
        step: &[ObjectId],
        end: Instant,
    ) -> Result<Vec<ObjectId>, ReconcileError> {
        let mut looked = Looked::default();
        let deleted = remover.delete(&self.of(step), &mut looked.gone).await;
        self.observe(looked);
        deleted?;
        let patience = end.min(Instant::now() + PATIENCE);
        let looked = remover.until_gone(&self.of(step), (patience, end)).await?;
        self.observe(looked);
        Ok(self.progress.going(step))
    }

    fn observe(&mut self, looked: Looked) {
        for id in &looked.gone {
            if let Some(present) = self.objects.get(id) {
                self.inventory.forget(&present.key);
            }
        }
        self.progress.observe(&looked.gone, looked.held);
    }

    /// Those of `ids` that are still there.
    fn of(&self, ids: &[ObjectId]) -> Vec<Present> {
        let left = self.progress.left();
        ids.iter()
            .filter(|id| left.contains(id))
            .filter_map(|id| self.objects.get(id).cloned())
            .collect()
    }
}

/// Those of `present` that requesters have to be asked about: the deletion of the others was asked for before, and finalizers hold them.
pub(in crate::reconcile) fn not_held(present: &[Present]) -> Vec<Present> {
    let asked = present.iter().filter(|present| present.held_by.is_empty());
    asked.cloned().collect()
}
