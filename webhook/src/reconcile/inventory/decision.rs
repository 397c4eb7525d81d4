//! The class that authorized the content of a BundleDeployment, as recorded in the inventory.
//! The rule is in `bundle_core::plan::decision`.

use bundle_core::plan::decision::{DecidedObjects, Decider};
use bundle_core::plan::inventory::Inventory;
use bundle_core::review::{Class, approval_terms};
use kube::api::DynamicObject;

/// Returns the identity of the deciding class for content of `deployment`.
pub(in crate::reconcile) fn decider(class: &Class, deployment: &DynamicObject) -> Decider {
    Decider::new(class, &approval_terms(&deployment.data["spec"]))
}

/// Returns the recorded objects that the class of `decider` authorized.
pub(in crate::reconcile) fn objects(inventory: &Inventory, decider: &Decider) -> DecidedObjects {
    let record = inventory.record.as_ref();
    record.map_or(DecidedObjects::None, |record| {
        record.decisions.objects(decider)
    })
}
