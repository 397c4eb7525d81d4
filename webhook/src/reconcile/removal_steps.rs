//! The steps of a removal: what the requesters may not delete stays, everything else goes in the reverse order, and a finalizer holds up only its own object.
//! The order and the messages are in `bundle_core::plan::removal`, single requests in `remove`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal::{self, DeletionCheck, Obstacle};
use bundle_core::review::Requester;
use bundle_core::review::deployment::CustomResources;

use super::removal_rights;
use super::remove::{Looked, Present, Remover, name_some, next_free_step};
use super::room::Room;
use super::teardown::{REFUSED, REMOVING, refused};
use super::trouble::{Retry, Trouble};

/// How long one reconcile waits for objects to go, before it says which ones it waits for.
const WAIT: Duration = Duration::from_secs(5);
/// How long it waits for objects that finalizers hold, before it goes on with others.
const PATIENCE: Duration = Duration::from_secs(1);

/// The removal of what a BundleDeployment installed.
pub(super) struct Removal<'a> {
    pub(super) room: &'a Room,
    pub(super) remover: &'a Remover<'a>,
    pub(super) policy: CustomResources,
    pub(super) check: DeletionCheck,
    pub(super) requesters: &'a [Requester],
    /// The command with which somebody takes the deployment over.
    pub(super) admit: &'a str,
}

/// What is left to do.
struct Rest<'a> {
    present: Vec<Present>,
    obstacles: BTreeMap<ObjectId, Obstacle>,
    inventory: &'a mut Inventory,
}

impl Rest<'_> {
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
    fn held(&self) -> Vec<Present> {
        let held = self.present.iter().filter(|present| {
            let obstacle = self.obstacles.get(&present.id);
            matches!(obstacle, Some(Obstacle::Finalizers(_)))
        });
        held.cloned().collect()
    }
}

impl Removal<'_> {
    /// Removes the objects that are there, and forgets those in `inventory` that are gone.
    pub(super) async fn run(
        &self,
        inventory: &mut Inventory,
        mut present: Vec<Present>,
    ) -> Result<(), Trouble> {
        let end = Instant::now() + WAIT;
        if self.policy != CustomResources::Delete {
            present = self.without_definitions_in_use(inventory, present).await?;
        }
        let mut rest = Rest {
            obstacles: self.obstacles(&present).await?,
            present,
            inventory,
        };
        loop {
            let step: Vec<Present> = next_free_step(&rest.present, &rest.obstacles)
                .into_iter()
                .cloned()
                .collect();
            if !step.is_empty() {
                self.delete(&step, &mut rest, end).await?;
                continue;
            }
            let held = rest.held();
            if held.is_empty() || Instant::now() > end {
                break;
            }
            // Nothing else is left to do meanwhile.
            let looked = self.remover.until_gone(&held, (end, end)).await?;
            rest.take(looked);
        }
        self.result(&rest)
    }

    /// Deletes one step. Fails while objects are still going that no finalizer holds.
    async fn delete(
        &self,
        step: &[Present],
        rest: &mut Rest<'_>,
        end: Instant,
    ) -> Result<(), Trouble> {
        let mut looked = Looked::default();
        let deleted = self.remover.delete(step, &mut looked.gone).await;
        rest.take(looked);
        deleted?;
        let going = rest.of(step);
        let patience = end.min(Instant::now() + PATIENCE);
        let looked = self.remover.until_gone(&going, (patience, end)).await?;
        rest.take(looked);
        let left = rest.of(&going);
        let waiting: Vec<&Present> = left
            .iter()
            .filter(|left| !rest.obstacles.contains_key(&left.id))
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let left = rest.present.len();
        let names = name_some(&waiting);
        Err(Trouble::new(
            codes::install::REMOVAL_FAILED,
            REMOVING,
            format!("{left} objects are left; waiting for these to go: {names}"),
            Retry::Soon,
        ))
    }

    /// Returns what stays from the beginning: objects that a requester may not delete, and those that finalizers have held since an earlier try.
    async fn obstacles(
        &self,
        present: &[Present],
    ) -> Result<BTreeMap<ObjectId, Obstacle>, Trouble> {
        let (held, asked): (Vec<Present>, Vec<Present>) = present
            .iter()
            .cloned()
            .partition(|present| !present.held_by.is_empty());
        let mut obstacles: BTreeMap<ObjectId, Obstacle> = held
            .into_iter()
            .map(|held| (held.id, Obstacle::Finalizers(held.held_by)))
            .collect();
        let (room, requesters) = (self.room, self.requesters);
        let kept =
            removal_rights::undeletable(room, self.check, requesters, &asked, REFUSED).await?;
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
        Ok(obstacles)
    }

    /// Lets definitions go of whose kinds objects exist that the deployment did not install, or fails, as the spec says.
    async fn without_definitions_in_use(
        &self,
        inventory: &mut Inventory,
        present: Vec<Present>,
    ) -> Result<Vec<Present>, Trouble> {
        let in_use = self.remover.in_use(&present).await?;
        if self.policy == CustomResources::Refuse && !in_use.is_empty() {
            let list = in_use
                .iter()
                .map(|kept| format!("{}: {}", kept.id, kept.why))
                .collect();
            return Err(Trouble {
                retry: Retry::Soon,
                ..refused(
                    codes::install::RESOURCES_LEFT,
                    format!(
                        "nothing is torn down while custom resources exist that were not installed by it: {} (delete them, or set spec.deletion.customResources: Orphan or Delete)",
                        super::trouble::list(list, 10)
                    ),
                )
            });
        }
        let (orphans, rest): (Vec<_>, Vec<_>) = present
            .into_iter()
            .partition(|present| in_use.iter().any(|kept| kept.id == present.id));
        self.remover.release(&orphans).await?;
        for orphan in orphans {
            inventory.forget(&orphan.key);
        }
        Ok(rest)
    }

    fn result(&self, rest: &Rest<'_>) -> Result<(), Trouble> {
        if rest.present.is_empty() {
            return Ok(());
        }
        let message = removal::message(rest.present.len(), &rest.obstacles, self.admit);
        let refuses = |obstacle: &Obstacle| matches!(obstacle, Obstacle::NotAllowed(_));
        if !rest.obstacles.values().any(refuses) {
            let code = codes::install::REMOVAL_FAILED;
            return Err(Trouble::new(code, REMOVING, message, Retry::Soon));
        }
        let retry = if rest.held().is_empty() {
            Retry::Slowly
        } else {
            Retry::Soon
        };
        Err(Trouble {
            retry,
            ..refused(codes::install::REMOVAL_NOT_ALLOWED, message)
        })
    }
}
