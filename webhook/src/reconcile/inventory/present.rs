//! Recorded objects that exist, and objects that a removal does not delete.

use std::sync::Arc;

use bundle_core::object::ObjectId;
use bundle_core::plan::removal::NoDeletionReason;

use crate::reconcile::api::discovery::Kind;

/// A recorded object that exists. Several lists can share one object.
pub(in crate::reconcile) type SharedPresentObject = Arc<PresentObject>;

/// A recorded object that exists, and that can be deleted.
#[derive(Debug)]
pub(in crate::reconcile) struct PresentObject {
    pub(in crate::reconcile) id: ObjectId,
    /// The id as text, which is the key in the inventory.
    pub(in crate::reconcile) key: String,
    pub(in crate::reconcile) kind: Arc<Kind>,
    pub(in crate::reconcile) uid: String,
    /// The finalizers that delay the deletion of the object. Empty if the object is not being
    /// deleted.
    pub(in crate::reconcile) held_by: Vec<String>,
}

/// An object that is not deleted, and the reason.
pub(in crate::reconcile) struct KeptObject {
    pub(in crate::reconcile) id: ObjectId,
    pub(in crate::reconcile) why: NoDeletionReason,
}
