//! Objects that are to go and are still there: deleted in steps, each of which waits for the one before, while a finalizer holds up only what depends on its object.
//! A removal and a prune share it. The order is in `bundle_core::plan::removal`, single requests in `remove`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal::Obstacle;

use crate::reconcile::error::ReconcileError;
use crate::reconcile::removal::remove::{KeptObject, Looked, Present, Remover, next_free_step};

/// Time for which one reconcile waits for objects to go, before it says which ones it waits for.
const WAIT: Duration = Duration::from_secs(5);
/// Time for which it waits for objects that finalizers hold, before it goes on with others.
const PATIENCE: Duration = Duration::from_secs(1);

/// State of a removal that is under way.
pub(in crate::reconcile) struct Rest<'a> {
    /// Objects that are still there.
    pub(in crate::reconcile) present: Vec<Present>,
    /// Reasons for which some of them stay for now.
    pub(in crate::reconcile) obstacles: BTreeMap<ObjectId, Obstacle>,
    /// Inventory from which objects are removed once they are gone.
    pub(in crate::reconcile) inventory: &'a mut Inventory,
}

impl Rest<'_> {
    /// Deletes everything that no obstacle keeps, step by step. Returns those that are still going although no finalizer holds them; then it has run out of
    /// time.
    pub(in crate::reconcile) async fn remove(
        &mut self,
        remover: &Remover<'_>,
    ) -> Result<Vec<Present>, ReconcileError> {
        let end = Instant::now() + WAIT;
        loop {
            let step: Vec<Present> = next_free_step(&self.present, &self.obstacles)
                .into_iter()
                .cloned()
                .collect();
            if !step.is_empty() {
                let going = self.delete(remover, &step, end).await?;
                if !going.is_empty() {
                    return Ok(going);
                }
                continue;
            }
            let held = self.held();
            if held.is_empty() || Instant::now() > end {
                return Ok(Vec::new());
            }
            // Nothing else is left to do meanwhile.
            let looked = remover.until_gone(&held, (end, end)).await?;
            self.take(looked);
        }
    }

    /// Deletes one step. Returns those that are still going and that no finalizer holds.
    async fn delete(
        &mut self,
        remover: &Remover<'_>,
        step: &[Present],
        end: Instant,
    ) -> Result<Vec<Present>, ReconcileError> {
        let mut looked = Looked::default();
        let deleted = remover.delete(step, &mut looked.gone).await;
        self.take(looked);
        deleted?;
        let going = self.of(step);
        let patience = end.min(Instant::now() + PATIENCE);
        let looked = remover.until_gone(&going, (patience, end)).await?;
        self.take(looked);
        let mut left = self.of(&going);
        left.retain(|left| !self.obstacles.contains_key(&left.id));
        Ok(left)
    }

    /// Takes what a look has shown.
    fn take(&mut self, mut looked: Looked) {
        for key in &looked.gone {
            self.inventory.forget(key);
        }
        let obstacles = &mut self.obstacles;
        self.present.retain(|present| {
            let is_gone = looked.gone.contains(&present.key);
            if is_gone {
                obstacles.remove(&present.id);
            } else if let Some(finalizers) = looked.held.remove(&present.key) {
                obstacles.insert(present.id.clone(), Obstacle::Finalizers(finalizers));
            }
            !is_gone
        });
    }

    /// Those of `objects` that are still there.
    fn of(&self, objects: &[Present]) -> Vec<Present> {
        let left: BTreeSet<&str> = self.present.iter().map(|left| left.key.as_str()).collect();
        objects
            .iter()
            .filter(|object| left.contains(object.key.as_str()))
            .cloned()
            .collect()
    }

    /// The objects that only finalizers hold.
    pub(in crate::reconcile) fn held(&self) -> Vec<Present> {
        let held = self.present.iter().filter(|present| {
            let obstacle = self.obstacles.get(&present.id);
            matches!(obstacle, Some(Obstacle::Finalizers(_)))
        });
        held.cloned().collect()
    }
}

/// Those of `present` that requesters have to be asked about: the deletion of the others was asked for before, and finalizers hold them.
pub(in crate::reconcile) fn not_held(present: &[Present]) -> Vec<Present> {
    let asked = present.iter().filter(|present| present.held_by.is_empty());
    asked.cloned().collect()
}

/// Returns the reasons for which some of `present` stay from the beginning: finalizers have held them since an earlier try, or they are `kept`.
pub(in crate::reconcile) fn obstacles(
    present: &[Present],
    kept: Vec<KeptObject>,
) -> BTreeMap<ObjectId, Obstacle> {
    let held = present
        .iter()
        .filter(|present| !present.held_by.is_empty())
        .map(|held| {
            let finalizers = Obstacle::Finalizers(held.held_by.clone());
            (held.id.clone(), finalizers)
        });
    let mut obstacles: BTreeMap<ObjectId, Obstacle> = held.collect();
    for kept in kept {
        let obstacle = obstacles
            .entry(kept.id)
            .or_insert_with(|| Obstacle::NotAllowed(String::new()));
        if let Obstacle::NotAllowed(why) = obstacle {
            if !why.is_empty() {
                why.push_str(", ");
            }
            why.push_str(&kept.why);
        }
    }
    obstacles
}
