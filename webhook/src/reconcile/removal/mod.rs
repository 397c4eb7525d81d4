//! Deletion of installed objects: after an upgrade, and when a BundleDeployment is deleted.

pub(super) mod deleted_objects;
pub(super) mod deletion;
mod foreign_resources;
pub(super) mod namespace_objects;
pub(super) mod ordered_removal;
pub(super) mod prune;
pub(super) mod remove;
pub(super) mod steps;
pub(super) mod teardown;
