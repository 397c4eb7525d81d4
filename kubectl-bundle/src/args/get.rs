//! Arguments of `get` and `status`.

use clap::Args;

use super::{Kube, Wide};

/// List the BundleDeployments of the cluster, with what is installed and whether it is as it should
/// be, and after them the Bundles that no BundleDeployment made.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # All of them
  kubectl bundle get

  # One, with more columns
  kubectl bundle get web -o wide

  # Each change as it happens
  kubectl bundle get -w")]
pub(crate) struct Get {
    /// Names of BundleDeployments or Bundles; all of them if none is given
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// After listing them, print each BundleDeployment that changes
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) watch: bool,
    /// Accepted as in kubectl: the objects have no namespace, so that all are listed in any case
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Print metadata.managedFields as well, with -o json and -o yaml
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// Print as
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Wide>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
}

/// Show one BundleDeployment: what is installed, at whose request, each condition with its message,
/// and its installed objects with version, last correction and health, as far as you may read them.
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
    /// Print as: json and yaml are the BundleDeployment with its installed objects in `objects`
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Wide>,
    /// Print metadata.managedFields as well, with -o json and -o yaml
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
}
