//! The reconcile of a BundleDeployment: its steps, the objects of its content, its record of the
//! installation, and its conditions.

mod certificates;
pub(super) mod checks;
pub(super) mod conditions;
pub(super) mod controller;
mod created_namespace;
pub(super) mod entry;
mod finish;
pub(super) mod inventory;
mod rollout;
mod selected;
pub(super) mod steps;
pub(super) mod upgrade;
