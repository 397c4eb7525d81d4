//! Verbs for Bundles and BundleDeployments in a cluster.

pub(crate) mod cluster;
mod content;
mod everyday;
mod preview;
mod revisions;
mod upgrades;
