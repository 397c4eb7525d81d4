//! Arguments of `get` and `status`.

use clap::Args;

use super::{Kube, Wide};

/// List the BundleDeployments of the cluster with their installed versions and conditions, followed
/// by the Bundles that no BundleDeployment created.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # All BundleDeployments
  kubectl bundle get

  # One BundleDeployment, with more columns
  kubectl bundle get web -o wide

  # Print changes
  kubectl bundle get -w")]
pub(crate) struct Get {
    /// Names of BundleDeployments or Bundles [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// After the list, print each BundleDeployment that changes
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) watch: bool,
    /// Accepted as in kubectl, without effect: the objects are cluster-scoped
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Print metadata.managedFields with -o json and -o yaml
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Wide>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
}

/// Describe one BundleDeployment: installed content, requester, conditions with their messages, and
/// the installed objects with version, last correction and health, as far as you may read them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle status web

  # Objects that are not ready
  kubectl bundle status web -o json | jq '.objects[] | select(.health != null and .health != \"Ready\")'")]
pub(crate) struct Status {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Output format; json and yaml print the BundleDeployment with its installed objects in
    /// `objects`
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Wide>,
    /// Print metadata.managedFields with -o json and -o yaml
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
}
