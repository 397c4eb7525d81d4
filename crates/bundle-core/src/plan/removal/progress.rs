//! Objects that are to go: which are deleted next, which are waited for, and the result. A removal and a prune share it.
//! Not here: who has to be asked about them (consent), or requests (webhook::reconcile).

use std::collections::{BTreeMap, BTreeSet};

use super::{Obstacle, REFUSED, REMOVING, RemovalFailure, message, next_step, waits_for};
use crate::diagnostic::codes;
use crate::object::ObjectId;
use crate::plan::conditions::some_of;
use crate::plan::consent::ConsentRule;
use crate::plan::retry::RetryPolicy;

/// Most objects that a message names.
const NAMED: usize = 10;
/// Most finalizers of one object that a warning names.
const FINALIZERS: usize = 3;

/// Objects that are to go and are still there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    left: BTreeSet<ObjectId>,
    obstacles: BTreeMap<ObjectId, Obstacle>,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Delete these at the same time, and look at them until they are gone.
    Delete(Vec<ObjectId>),
    /// Look at these again, which finalizers hold: nothing else can be done before they are gone.
    Await(Vec<ObjectId>),
    /// Nothing: all are gone, or stay for now.
    End,
}

impl Progress {
    /// All of `objects`, each with the finalizers that have held it since an earlier try, if any. Those that are `kept` stay, each for a reason.
    pub fn new(
        objects: impl IntoIterator<Item = (ObjectId, Vec<String>)>,
        kept: impl IntoIterator<Item = (ObjectId, String)>,
    ) -> Self {
        let mut progress = Self::default();
        for (id, held_by) in objects {
            if !held_by.is_empty() {
                let finalizers = Obstacle::Finalizers(held_by);
                progress.obstacles.insert(id.clone(), finalizers);
            }
            progress.left.insert(id);
        }
        for (id, reason) in kept {
            let obstacle = progress
                .obstacles
                .entry(id)
                .or_insert_with(|| Obstacle::NotAllowed(String::new()));
            if let Obstacle::NotAllowed(why) = obstacle {
                if !why.is_empty() {
                    why.push_str(", ");
                }
                why.push_str(&reason);
            }
        }
        progress
    }

    /// Returns the next thing to do.
    pub fn next(&self) -> Next {
        let step: Vec<ObjectId> = next_step(&self.left, &self.obstacles)
            .into_iter()
            .cloned()
            .collect();
        if !step.is_empty() {
            return Next::Delete(step);
        }
        let held: Vec<ObjectId> = self
            .left
            .iter()
            .filter(|id| self.is_held(id))
            .cloned()
            .collect();
        if held.is_empty() {
            Next::End
        } else {
            Next::Await(held)
        }
    }

    /// Notes which objects are `gone`, and which ones finalizers hold.
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

    /// The objects that are still there.
    pub fn left(&self) -> &BTreeSet<ObjectId> {
        &self.left
    }

    /// Those of `step` that are still going and that no finalizer holds.
    pub fn going(&self, step: &[ObjectId]) -> Vec<ObjectId> {
        step.iter()
            .filter(|id| self.left.contains(id) && !self.obstacles.contains_key(id))
            .cloned()
            .collect()
    }

    fn is_held(&self, id: &ObjectId) -> bool {
        matches!(self.obstacles.get(id), Some(Obstacle::Finalizers(_)))
    }

    /// Returns whether it is being deleted: a finalizer holds it, or it is among `going`.
    fn is_going(&self, id: &ObjectId, going: &[ObjectId]) -> bool {
        self.is_held(id) || going.contains(id)
    }

    /// Fails if a removal is not complete, because objects are still `going` or stay. `admit` is the command with which somebody takes the deployment over.
    pub fn removal_result(
        &self,
        going: &[ObjectId],
        rule: &ConsentRule,
        admit: &str,
    ) -> Result<(), RemovalFailure> {
        let goes_on = |message| RemovalFailure {
            code: codes::install::REMOVAL_FAILED,
            reason: REMOVING,
            message,
            retry: RetryPolicy::Soon,
        };
        if !going.is_empty() {
            let (left, names) = (self.left.len(), some_of(going, NAMED));
            return Err(goes_on(format!(
                "{left} objects are left; waiting for these to go: {names}"
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
        if refused.is_empty() {
            return Err(goes_on(message));
        }
        let code = if rule.account_withdrawn().is_some() {
            codes::install::ACCOUNT_WITHDRAWN
        } else if refused.iter().all(|id| rule.exceeds_delegation(id)) {
            codes::install::OUTSIDE_DELEGATION
        } else {
            codes::install::REMOVAL_NOT_ALLOWED
        };
        let retry = if self.left.iter().any(|id| self.is_held(id)) {
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

    /// Names what a prune left, and why; not what is only `going`.
    pub fn prune_warnings(&self, going: &[ObjectId]) -> Vec<String> {
        let stays = self.left.iter().filter_map(|id| {
            let why = match self.obstacles.get(id) {
                Some(Obstacle::NotAllowed(why)) => why.clone(),
                Some(Obstacle::Finalizers(names)) => {
                    let names = some_of(names, FINALIZERS);
                    format!("it is being deleted, and finalizers of others hold it: {names}")
                }
                None if going.contains(id) => return None,
                None => "objects that stay need it".to_owned(),
            };
            Some(format!(
                "{id} is no longer part of the content and stays: {why}"
            ))
        });
        stays.collect()
    }

    /// Returns the message about a prune that is not complete: others wait for what is going, and are pruned soon after. `None` if nothing waits.
    pub fn unpruned(&self, going: &[ObjectId]) -> Option<String> {
        let is_going = |id: &ObjectId| self.is_going(id, going);
        if !waits_for(&self.left, is_going, &self.obstacles) {
            return None;
        }
        let going: Vec<&ObjectId> = self.left.iter().filter(|id| is_going(id)).collect();
        Some(format!(
            "{} objects that are no longer part of the content are left; waiting for these to go: {}",
            self.left.len(),
            some_of(&going, NAMED)
        ))
    }
}

#[cfg(test)]
mod tests;
