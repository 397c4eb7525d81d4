//! Reconciles of a BundleDeployment: steps, rounds of an apply, revisions and conditions.

pub mod revisions;
pub mod rounds;
pub mod status;
pub mod steps;
pub mod summary;
