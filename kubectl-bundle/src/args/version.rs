//! Arguments of `version`.

use clap::Args;

use super::{Data, Kube};

/// Print the versions of this program, of the cluster and of the webhook in it.
///
/// The webhook's version is the tag of the image of Deployment `bundle-webhook`; reading it takes
/// the right to get that Deployment.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # This program and the cluster of the current context
  kubectl bundle version

  # Only this program, without asking anybody
  kubectl bundle version --client")]
pub(crate) struct Version {
    /// Do not ask the cluster
    #[arg(long)]
    pub(crate) client: bool,
    /// Namespace in which the webhook runs
    #[arg(long, value_name = "NAME", default_value = "bundle-system")]
    pub(crate) system_namespace: String,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
}
