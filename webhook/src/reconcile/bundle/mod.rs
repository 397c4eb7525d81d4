//! Reconciles of Bundles: unpacking, and verifying signatures. Also the Bundle that a
//! BundleDeployment generates from its template.

pub(super) mod compatibility;
pub(super) mod controller;
pub(super) mod generated;
mod status;
mod steps;
pub(super) mod unpack;
pub(super) mod verify;
