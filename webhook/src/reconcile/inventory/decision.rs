//! The recorded decisions of classes that authorized the content of a BundleDeployment. The rule is
//! in `bundle_core::plan::decision`.

use bundle_core::plan::decision::{DecidedObjects, Decider};
use bundle_core::plan::inventory::Inventory;
use bundle_core::review::{Class, approval_terms};
use kube::api::DynamicObject;

/// Returns the basis of a recorded decision: the class with its current terms, and the settings of
/// `deployment` that require approval.
pub(in crate::reconcile) fn decider(class: &Class, deployment: &DynamicObject) -> Decider {
    Decider::new(class, &approval_terms(&deployment.data["spec"]))
}

/// Returns the objects in `inventory` that the class of `decider` authorized.
pub(in crate::reconcile) fn objects(inventory: &Inventory, decider: &Decider) -> DecidedObjects {
    let record = inventory.record.as_ref();
    record.map_or(DecidedObjects::None, |record| {
        record.decisions.objects(decider)
    })
}
