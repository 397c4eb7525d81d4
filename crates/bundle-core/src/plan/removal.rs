//! The removal of what a BundleDeployment installed: whether its deletion counts, which of the objects go next, and the message about those that stay.
//! Not here: who has to be asked (consent), or access reviews, dry runs and deletions (webhook::reconcile).

mod account;
mod failure;
mod keep;
mod progress;
pub mod steps;

use std::collections::{BTreeMap, BTreeSet};

pub use account::{RemovingAccount, removing_account};
pub use failure::{REFUSED, REMOVING, RemovalFailure};
pub use keep::needed;
pub use progress::{Next, Progress};

use super::conditions::some_of;
use super::phases::{self, Phase};
use crate::object::ObjectId;

/// How much later than a deletion the stamp of the write must be that admits it, in milliseconds. The API server keeps the time of a deletion in whole
/// seconds, and its clock and that of the pod may differ.
pub const ADMITTED_AFTER: i64 = 6_000;
/// How many objects a message names.
const OBJECTS: usize = 10;
/// How many finalizers of one object a message names.
const FINALIZERS: usize = 3;
/// The finalizer of the API server itself. A CustomResourceDefinition has it until its custom resources are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A deletion, and what proves that somebody was asked about it. All times are in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct ObservedDeletion {
    /// `metadata.deletionTimestamp`, by the clock of the API server: the begin of the second.
    pub deleted: i64,
    /// Whether the inventory records that the deletion was accepted before.
    pub is_recorded: bool,
    /// Since when the API server can have carried out no deletion without a review; `None` while it can.
    pub enforced_since: Option<i64>,
    /// The time of the stamp of an object that is vouched for and has the annotation `core.rukpak.io/admit` for its present spec.
    pub admitted: Option<i64>,
}

impl ObservedDeletion {
    /// Whether the deletion was reviewed, or somebody who may delete the object has admitted it since.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_recorded
            || self
                .enforced_since
                .is_some_and(|since| self.deleted >= since)
            || self.admitted.is_some_and(|time| self.can_be_admitted(time))
    }

    /// Fails if nobody was asked about the deletion. `admit` is the command with which somebody admits it, once that can be done; `now` is in milliseconds.
    pub fn check(&self, now: i64, admit: &str) -> Result<(), RemovalFailure> {
        if self.is_accepted() {
            Ok(())
        } else if self.can_be_admitted(now) {
            Err(RemovalFailure::not_admitted(admit))
        } else {
            Err(RemovalFailure::not_admitted_yet())
        }
    }

    /// Whether a stamp that is made at `time` can admit the deletion.
    fn can_be_admitted(&self, time: i64) -> bool {
        time >= self.deleted.saturating_add(ADMITTED_AFTER)
    }
}

/// Why an object stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It may not be deleted: the requesters who may not, with the words of the API server; or, before a prune, the objects that need it.
    NotAllowed(String),
    /// It is being deleted, and these finalizers hold it.
    Finalizers(Vec<String>),
}

impl Obstacle {
    /// Whether it is a definition whose custom resources the API server still deletes. Nobody else holds it.
    pub fn is_cleanup(&self) -> bool {
        matches!(self, Self::Finalizers(names) if !names.is_empty() && names.iter().all(|name| name == CLEANUP))
    }
}

/// Returns those of `objects` to delete next. They may go at the same time. Objects with an obstacle stay, and so does what depends on them:
/// - the namespace of such an object;
/// - everything but custom resources, if it is a custom resource of a definition among `objects`: a controller has to answer its finalizers, and
///   its definition must not take it along;
/// - everything of earlier phases but custom resources, if it is an admission registration or an aggregated API: without its backend it stops other requests.
fn next_step<'a>(
    objects: impl IntoIterator<Item = &'a ObjectId>,
    obstacles: &BTreeMap<ObjectId, Obstacle>,
) -> Vec<&'a ObjectId> {
    let objects: Vec<&ObjectId> = objects.into_iter().collect();
    let phase = |id: &ObjectId| Phase::of(&id.group, &id.kind);
    let defined: BTreeSet<&str> = objects
        .iter()
        .filter(|id| phase(id) == Phase::Crds)
        .filter_map(|id| Some(id.name.split_once('.')?.1))
        .collect();
    let is_custom = |id: &ObjectId| defined.contains(id.group.as_str());
    let waits_for_custom = obstacles.keys().any(is_custom);
    let admission = obstacles
        .keys()
        .map(phase)
        .filter(|phase| *phase >= Phase::Admission)
        .max();
    let namespaces: BTreeSet<&str> = obstacles
        .keys()
        .filter_map(|id| id.namespace.as_deref())
        .collect();
    let is_free = |id: &&&ObjectId| {
        let waits_for_admission = admission.is_some_and(|admission| phase(id) < admission);
        let waits = !is_custom(id) && (waits_for_custom || waits_for_admission)
            || phase(id) == Phase::Namespaces && namespaces.contains(id.name.as_str());
        !waits && !obstacles.contains_key(id)
    };
    let free = objects.iter().filter(is_free).copied();
    phases::removal(free, is_custom)
        .into_iter()
        .next()
        .unwrap_or_default()
}

/// Returns whether any of `objects` goes as soon as those are gone that are `going` now, such as those that finalizers hold; the others stay for good.
fn waits_for<'a>(
    objects: impl IntoIterator<Item = &'a ObjectId>,
    going: impl Fn(&ObjectId) -> bool,
    obstacles: &BTreeMap<ObjectId, Obstacle>,
) -> bool {
    let rest = objects.into_iter().filter(|id| !going(id));
    let stay = obstacles.iter().filter(|(id, _)| !going(id));
    let stay = stay.map(|(id, why)| (id.clone(), why.clone())).collect();
    !next_step(rest, &stay).is_empty()
}

/// Returns the message about `left` objects that stay for now, of which `obstacles` names those that the others wait for. `admit` is the command with which
/// somebody takes the deployment over.
fn message(left: usize, obstacles: &BTreeMap<ObjectId, Obstacle>, admit: &str) -> String {
    let mut refused = Vec::new();
    let mut held = Vec::new();
    let mut emptied = Vec::new();
    for (id, obstacle) in obstacles {
        match obstacle {
            Obstacle::Finalizers(_) if obstacle.is_cleanup() => emptied.push(id.to_string()),
            Obstacle::NotAllowed(why) => refused.push(format!("{id}: {why}")),
            Obstacle::Finalizers(names) => {
                held.push(format!("{id} ({})", some_of(names, FINALIZERS)));
            }
        }
    }
    let mut parts = vec![match left {
        1 => "1 object is left".to_owned(),
        left => format!("{left} objects are left"),
    }];
    if !held.is_empty() {
        parts.push(format!(
            "waiting for finalizers of others: {}",
            some_of(&held, OBJECTS)
        ));
    }
    if !emptied.is_empty() {
        parts.push(format!(
            "custom resources are still being deleted, which the API server waits for: {}",
            some_of(&emptied, OBJECTS)
        ));
    }
    if !refused.is_empty() {
        parts.push(format!(
            "those who asked for the content may not delete these, so they stay: {} (grant the rights; or somebody who has them and verb manage takes the deployment over with {admit}; or delete these objects by hand; or set spec.deletion.objects: Orphan, which leaves behind what is left)",
            list(&refused)
        ));
    }
    parts.join("; ")
}

/// Up to ten of `refused`, which have commas of their own.
fn list(refused: &[String]) -> String {
    let rest = refused.len().saturating_sub(OBJECTS);
    let shown = refused[..refused.len() - rest].join("; ");
    if rest == 0 {
        shown
    } else {
        format!("{shown}; and {rest} more")
    }
}

#[cfg(test)]
mod tests;
