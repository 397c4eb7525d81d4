//! Reconciles of a BundleDeployment: steps, rules of its package, rounds of an
//! apply, revisions, rollout and conditions.

pub mod package_rules;
pub mod revisions;
pub mod rollout;
pub mod rounds;
pub mod status;
pub mod steps;
pub mod summary;
