//! Recorded objects that exist on the cluster, and recorded objects that a removal does not delete.

use std::sync::Arc;

use bundle_core::object::ObjectId;
use bundle_core::plan::removal::NoDeletionReason;

use crate::reconcile::api::discovery::Kind;

/// A shared [`PresentObject`], so that several lists can contain the same object without a copy.
pub(in crate::reconcile) type SharedPresentObject = Arc<PresentObject>;

/// A recorded object that exists on the cluster, with the data for its deletion.
#[derive(Debug)]
pub(in crate::reconcile) struct PresentObject {
    pub(in crate::reconcile) id: ObjectId,
    /// The object id as text, for example `ConfigMap/team-a/web`. It is the object key in the
    /// inventory.
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
