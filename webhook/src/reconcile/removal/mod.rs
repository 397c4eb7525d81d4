//! Deletion of installed objects: after an upgrade (prune), and when a BundleDeployment is deleted
//! (removal).

pub(super) mod deleted_objects;
pub(super) mod deletion;
mod foreign_resources;
pub(super) mod namespace_objects;
pub(super) mod ordered_removal;
pub(super) mod prune;
mod release;
pub(super) mod remove;
pub(super) mod steps;
pub(super) mod teardown;
