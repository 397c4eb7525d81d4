//! Status, conditions and Events of the project's own objects.

pub(super) mod condition_set;
pub(super) mod recorders;
pub(super) mod unreadable;
pub(super) mod writer;

use kube::api::DynamicObject;
use serde::de::DeserializeOwned;

/// Parses the status of an object of the project's own kinds. Returns the default value if the
/// status is missing or invalid.
pub(in crate::reconcile) fn status_of<S: DeserializeOwned + Default>(object: &DynamicObject) -> S {
    S::deserialize(&object.data["status"]).unwrap_or_default()
}
