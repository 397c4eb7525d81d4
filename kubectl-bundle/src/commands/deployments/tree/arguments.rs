//! Arguments of `tree`.

use clap::Args;

use super::Tree;
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, OutputFlags, StateNamespaceFlags};

/// Print a BundleDeployment with its active Bundle, its installed objects and the objects that
/// these own, such as ReplicaSets and Pods, with their health and recent warning Events.
///
/// The installed objects come from the inventory that bundle-webhook records, and never from
/// labels. Reading the inventory requires permission to get ConfigMaps in the state namespace.
/// Owned objects are found by the uid in ownerReferences. `forbidden` marks objects that you have
/// no permission to read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle tree web

  # Print the tree again after each change
  kubectl bundle tree web -w

  # The objects that are not ready
  kubectl bundle tree web -o json | jq '.. | objects | select(.health == \"Waiting\" or .health == \"Failed\")'")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// After the tree, print the tree again after each change
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) watch: bool,
    /// Flag for the namespace of the inventories.
    #[command(flatten)]
    pub(crate) state: StateNamespaceFlags,
    /// Output flags.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `tree`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Tree> {
        Ok(Tree {
            name: self.name,
            watch: self.watch,
            state_namespace: self.state.settings()?,
            format: self.output.format(),
            cluster: self.kube.settings(environment)?,
        })
    }
}
