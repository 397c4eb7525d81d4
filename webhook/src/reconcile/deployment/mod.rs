//! The reconcile of a BundleDeployment: its steps, its record of installed objects, and its
//! conditions.

pub(super) mod approve;
pub(super) mod conditions;
pub(super) mod controller;
pub(super) mod decided;
pub(super) mod entry;
pub(super) mod failures;
mod finish;
pub(super) mod installation_record;
pub(super) mod inventory;
pub(super) mod namespaces;
pub(super) mod partial;
pub(super) mod permit;
pub(super) mod record;
pub(super) mod revisions;
pub(super) mod steps;
pub(super) mod upgrade;
