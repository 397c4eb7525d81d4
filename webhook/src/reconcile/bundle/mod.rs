//! Bundles: unpacking, verifying signatures, and the Bundle that a BundleDeployment generates.

pub(super) mod compatibility;
pub(super) mod controller;
pub(super) mod generated;
mod status;
mod steps;
pub(super) mod unpack;
pub(super) mod verify;
