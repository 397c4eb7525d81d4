//! `get` and `status`: of which deployments.
//! Not here: the columns.

use clap::Args;

use super::{Kube, Object, Wide};

/// List the BundleDeployments of the cluster, with what is installed and whether it is as it should be.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # All of them
  kubectl bundle get

  # One, with more columns
  kubectl bundle get web -o wide")]
pub(crate) struct Get {
    /// Names; all of them if none is given
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Print as
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Wide>,
    /// Which cluster.
    #[command(flatten)]
    pub(crate) kube: Kube,
}

/// Show one BundleDeployment: what is installed, at whose request, each condition with its message, and drift.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle status web")]
pub(crate) struct Status {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print the object instead
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Object>,
    /// Which cluster.
    #[command(flatten)]
    pub(crate) kube: Kube,
}
