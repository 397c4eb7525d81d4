//! Reconciles of a BundleDeployment: steps, rules of its package, revisions, rollout, conditions,
//! and the rounds of an apply (groups of objects that are applied together).

pub mod package_rules;
pub mod revisions;
pub mod rollout;
pub mod rounds;
pub mod status;
pub mod steps;
pub mod summary;
