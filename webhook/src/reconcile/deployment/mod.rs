//! The reconcile of a BundleDeployment: its steps, the objects of the content, the record of the
//! installation, and the conditions.

mod certificates;
pub(super) mod checks;
pub(super) mod conditions;
pub(super) mod controller;
mod created_namespace;
pub(super) mod entry;
mod finish;
pub(super) mod inventory;
mod observed_objects;
mod rollout;
mod selected;
pub(super) mod steps;
pub(super) mod upgrade;
