//! Removal of the objects of a BundleDeployment: the rule that accepts its deletion, the order of
//! deletions, and the message about remaining objects. [`crate::plan::consent`] computes the
//! required permissions. `webhook::reconcile` sends the requests.

mod account;
mod failure;
mod keep;
mod progress;
pub mod steps;

use std::collections::{BTreeMap, BTreeSet};

pub use account::{RemovingAccount, removing_account};
pub use failure::{REFUSED, REMOVING, RemovalFailure};
pub use keep::{NoDeletionReason, needed, reserved};
pub use progress::{NextRemoval, RemovalProgress};

use crate::object::ObjectId;
use crate::plan::conditions::some_of;
use crate::plan::phases::{self, Phase};
pub use crate::review::deletion::{ADMITTED_AFTER, ObservedDeletion};

/// Maximum number of objects in a message.
const OBJECTS: usize = 10;
/// Maximum number of finalizers of one object in a message.
const FINALIZERS: usize = 3;
/// Finalizer that the API server sets on a CustomResourceDefinition until its custom resources are
/// deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl ObservedDeletion {
    /// Fails if the webhook did not review the deletion, and no user admitted the deletion
    /// afterwards. `admit` is the command that admits the deletion. The failure contains this
    /// command if the deletion can already be admitted. `now` is in milliseconds since 1970.
    pub fn check(&self, now: i64, admit: &str) -> Result<(), RemovalFailure> {
        if self.is_accepted() {
            Ok(())
        } else if self.can_be_admitted(now) {
            Err(RemovalFailure::not_admitted(admit))
        } else {
            Err(RemovalFailure::not_admitted_yet())
        }
    }
}

/// Reason why an object remains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The deletion is not allowed. Contains the reasons as text, such as the message of the API
    /// server, the requesters without the permission, or the objects that depend on this object.
    NotAllowed(String),
    /// The object is a namespace of the webhook.
    Reserved,
    /// The object is being deleted, and these finalizers block its deletion.
    Finalizers(Vec<String>),
}

impl Obstacle {
    /// Returns true for a CustomResourceDefinition whose custom resources the API server is still
    /// deleting, and that has no other finalizer.
    pub fn is_cleanup(&self) -> bool {
        matches!(self, Self::Finalizers(names) if !names.is_empty() && names.iter().all(|name| name == CLEANUP))
    }
}

/// Returns the objects to delete next, all at the same time. Objects with an obstacle remain. The
/// following objects remain too:
/// - The namespace of an object with an obstacle.
/// - If a custom resource of a CustomResourceDefinition in `objects` has an obstacle: all objects
///   except custom resources. A controller must handle the finalizers of this custom resource. The
///   deletion of its definition would delete this custom resource.
/// - If an admission registration or an aggregated API has an obstacle: all objects of earlier
///   phases except custom resources. Without its backend, such an object blocks other requests.
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

/// Returns true if the deletion of at least one object waits only for objects that are being
/// deleted. `going` returns true for objects that are being deleted, also if finalizers block the
/// deletion.
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

/// Returns the number of remaining objects as text.
fn objects_left(left: usize) -> String {
    match left {
        1 => "1 object is left".to_owned(),
        left => format!("{left} objects are left"),
    }
}

/// Returns the message about `left` remaining objects. `obstacles` contains the objects that cannot
/// be deleted now, with the reasons. `admit` is the command that makes its user the requester of
/// the BundleDeployment.
fn message(left: usize, obstacles: &BTreeMap<ObjectId, Obstacle>, admit: &str) -> String {
    let mut refused = Vec::new();
    let mut held = Vec::new();
    let mut emptied = Vec::new();
    let mut reserved = Vec::new();
    for (id, obstacle) in obstacles {
        match obstacle {
            Obstacle::Finalizers(_) if obstacle.is_cleanup() => emptied.push(id.to_string()),
            Obstacle::NotAllowed(why) => refused.push(format!("{id}: {why}")),
            Obstacle::Reserved => reserved.push(id.to_string()),
            Obstacle::Finalizers(names) => {
                held.push(format!("{id} ({})", some_of(names, FINALIZERS)));
            }
        }
    }
    let mut parts = vec![objects_left(left)];
    if !held.is_empty() {
        parts.push(format!(
            "waiting for finalizers of other controllers: {}",
            some_of(&held, OBJECTS)
        ));
    }
    if !emptied.is_empty() {
        parts.push(format!(
            "waiting until the API server has deleted all custom resources: {}",
            some_of(&emptied, OBJECTS)
        ));
    }
    if !reserved.is_empty() {
        parts.push(format!(
            "namespaces of bundle-webhook are not deleted: {} (set spec.deletion.objects: Orphan to complete the deletion without them)",
            some_of(&reserved, OBJECTS)
        ));
    }
    if !refused.is_empty() {
        parts.push(format!(
            "requesters of the content lack permission to delete these objects: {} (grant the permissions, delete the objects by hand, set spec.deletion.objects: Orphan to keep them, or let a user with these permissions and verb manage become the requester: {admit})",
            list(&refused)
        ));
    }
    parts.join("; ")
}

/// Joins up to ten items with semicolons, because the items contain commas.
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
mod messages;
#[cfg(test)]
mod tests;
