//! Progress of a removal or prune: the remaining objects, the next deletions, and the result.
//! [`crate::plan::consent`] computes the required permissions. `webhook::reconcile` sends the
//! requests.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    NoDeletionReason, Obstacle, REFUSED, REMOVING, RemovalFailure, message, next_step,
    objects_left, waits_for,
};
use crate::diagnostic::codes;
use crate::object::ObjectId;
use crate::plan::conditions::some_of;
use crate::plan::consent::ConsentRule;
use crate::plan::retry::RetryPolicy;

/// Maximum number of objects in a message.
const NAMED: usize = 10;
/// Maximum number of finalizers of one object in a warning.
const FINALIZERS: usize = 3;

/// Objects to delete that still exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovalProgress {
    left: BTreeSet<ObjectId>,
    obstacles: BTreeMap<ObjectId, Obstacle>,
}

/// Next action of a removal or prune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextRemoval {
    /// Delete these objects at the same time, and wait until they no longer exist.
    Delete(Vec<ObjectId>),
    /// Read these objects again. Finalizers block their deletion, and no other object can be
    /// deleted while these objects exist.
    Await(Vec<ObjectId>),
    /// No action: all objects are deleted, or remain for now.
    End,
}

impl RemovalProgress {
    /// Returns the progress before the first deletion. `objects` are the objects to delete, each
    /// with the finalizers that blocked it in an earlier attempt. `kept` contains the objects that
    /// are not deleted, each with the reason.
    pub fn new(
        objects: impl IntoIterator<Item = (ObjectId, Vec<String>)>,
        kept: impl IntoIterator<Item = (ObjectId, NoDeletionReason)>,
    ) -> Self {
        let mut progress = Self::default();
        for (id, held_by) in objects {
            if !held_by.is_empty() {
                let finalizers = Obstacle::Finalizers(held_by);
                progress.obstacles.insert(id.clone(), finalizers);
            }
            progress.left.insert(id);
        }
        progress.keep(kept);
        progress
    }

    /// Records objects that are not deleted, each with the reason.
    pub fn keep(&mut self, kept: impl IntoIterator<Item = (ObjectId, NoDeletionReason)>) {
        for (id, reason) in kept {
            let known = self.obstacles.entry(id);
            let reason = match reason {
                NoDeletionReason::Reserved => {
                    known.or_insert(Obstacle::Reserved);
                    continue;
                }
                NoDeletionReason::Other(reason) => reason,
            };
            let obstacle = known.or_insert_with(|| Obstacle::NotAllowed(String::new()));
            if let Obstacle::NotAllowed(why) = obstacle {
                if !why.is_empty() {
                    why.push_str(", ");
                }
                why.push_str(&reason);
            }
        }
    }

    /// Returns the next action.
    pub fn next(&self) -> NextRemoval {
        let step: Vec<ObjectId> = next_step(&self.left, &self.obstacles)
            .into_iter()
            .cloned()
            .collect();
        if !step.is_empty() {
            return NextRemoval::Delete(step);
        }
        let held: Vec<ObjectId> = self
            .left
            .iter()
            .filter(|id| self.is_blocked_by_finalizer(id))
            .cloned()
            .collect();
        if held.is_empty() {
            NextRemoval::End
        } else {
            NextRemoval::Await(held)
        }
    }

    /// Records the objects that no longer exist (`gone`), and the objects that finalizers block.
    pub fn observe(
        &mut self,
        gone: &BTreeSet<ObjectId>,
        mut held: BTreeMap<ObjectId, Vec<String>>,
    ) {
        let obstacles = &mut self.obstacles;
        self.left.retain(|id| {
            let is_gone = gone.contains(id);
            if is_gone {
                obstacles.remove(id);
            } else if let Some(finalizers) = held.remove(id) {
                obstacles.insert(id.clone(), Obstacle::Finalizers(finalizers));
            }
            !is_gone
        });
    }

    /// Returns the objects that still exist.
    pub fn remaining(&self) -> &BTreeSet<ObjectId> {
        &self.left
    }

    /// Returns the objects of `step` that still exist and that no finalizer blocks.
    pub fn in_deletion(&self, step: &[ObjectId]) -> Vec<ObjectId> {
        step.iter()
            .filter(|id| self.left.contains(id) && !self.obstacles.contains_key(id))
            .cloned()
            .collect()
    }

    fn is_blocked_by_finalizer(&self, id: &ObjectId) -> bool {
        matches!(self.obstacles.get(id), Some(Obstacle::Finalizers(_)))
    }

    /// Fails if a removal is not complete: objects are being deleted (`in_deletion`) or remain.
    /// `admit` is the command that makes its user the requester of the BundleDeployment.
    pub fn removal_result(
        &self,
        in_deletion: &[ObjectId],
        rule: &ConsentRule,
        admit: &str,
    ) -> Result<(), RemovalFailure> {
        let goes_on = |message| RemovalFailure {
            code: codes::install::REMOVAL_FAILED,
            reason: REMOVING,
            message,
            retry: RetryPolicy::Soon,
        };
        if !in_deletion.is_empty() {
            let (left, names) = (objects_left(self.left.len()), some_of(in_deletion, NAMED));
            return Err(goes_on(format!(
                "{left}; waiting for the deletion of {names}"
            )));
        }
        if self.left.is_empty() {
            return Ok(());
        }
        let message = message(self.left.len(), &self.obstacles, admit);
        let refused: Vec<&ObjectId> = self
            .obstacles
            .iter()
            .filter(|(_, obstacle)| matches!(obstacle, Obstacle::NotAllowed(_)))
            .map(|(id, _)| id)
            .collect();
        let keeps_reserved = self
            .obstacles
            .values()
            .any(|obstacle| *obstacle == Obstacle::Reserved);
        if refused.is_empty() && !keeps_reserved {
            return Err(goes_on(message));
        }
        let code = if refused.is_empty() {
            codes::install::RESERVED_NAMESPACE
        } else if rule.account_withdrawn().is_some() {
            codes::install::ACCOUNT_WITHDRAWN
        } else if refused.iter().all(|id| rule.exceeds_delegation(id)) {
            codes::install::OUTSIDE_DELEGATION
        } else {
            codes::install::REMOVAL_NOT_ALLOWED
        };
        let retry = if self.left.iter().any(|id| self.is_blocked_by_finalizer(id)) {
            RetryPolicy::Soon
        } else {
            RetryPolicy::Slowly
        };
        Err(RemovalFailure {
            code,
            reason: REFUSED,
            message,
            retry,
        })
    }

    /// Returns a warning for each object that a prune did not delete, with the reason. Objects in
    /// `in_deletion` are omitted.
    pub fn prune_warnings(&self, in_deletion: &[ObjectId]) -> Vec<String> {
        let in_deletion: BTreeSet<&ObjectId> = in_deletion.iter().collect();
        let stays = self.left.iter().filter_map(|id| {
            let why = match self.obstacles.get(id) {
                Some(Obstacle::NotAllowed(why)) => why.clone(),
                Some(Obstacle::Reserved) => NoDeletionReason::Reserved.to_string(),
                Some(Obstacle::Finalizers(names)) => {
                    let names = some_of(names, FINALIZERS);
                    format!("it is being deleted, and waits for finalizers of other controllers: {names}")
                }
                None if in_deletion.contains(id) => return None,
                None => "remaining objects depend on it".to_owned(),
            };
            Some(format!(
                "{id} is no longer part of the content and stays: {why}"
            ))
        });
        stays.collect()
    }

    /// Returns the message about a prune that is not complete because objects wait for the deletion
    /// of other objects; `None` if no object waits.
    pub fn unpruned(&self, in_deletion: &[ObjectId]) -> Option<String> {
        let in_deletion: BTreeSet<&ObjectId> = in_deletion.iter().collect();
        // An object is also being deleted if a finalizer blocks its deletion.
        let is_in_deletion =
            |id: &ObjectId| self.is_blocked_by_finalizer(id) || in_deletion.contains(id);
        if !waits_for(&self.left, is_in_deletion, &self.obstacles) {
            return None;
        }
        let going: Vec<&ObjectId> = self.left.iter().filter(|id| is_in_deletion(id)).collect();
        Some(format!(
            "{} objects that are no longer part of the content are left; waiting for the deletion of {}",
            self.left.len(),
            some_of(&going, NAMED)
        ))
    }
}

#[cfg(test)]
mod tests;
