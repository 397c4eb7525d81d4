//! Verbs for Bundles and BundleDeployments in a cluster.

mod adopt;
pub(crate) mod cluster;
mod content;
mod everyday;
mod plan;
mod preview;
mod revisions;
mod several;
mod tree;
mod upgrades;
