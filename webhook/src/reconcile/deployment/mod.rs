//! The reconcile of a BundleDeployment: its steps, its record of installed objects, and its
//! conditions.

pub(super) mod checks;
pub(super) mod conditions;
pub(super) mod controller;
pub(super) mod entry;
pub(super) mod failures;
mod finish;
pub(super) mod inventory;
pub(super) mod partial;
pub(super) mod state;
pub(super) mod steps;
pub(super) mod upgrade;
