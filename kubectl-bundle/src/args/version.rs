//! `version`: of what.
//! Not here: asking the cluster.

use clap::Args;

use super::{Data, Kube};

/// Print the versions of this program and of the cluster.
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
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Which cluster.
    #[command(flatten)]
    pub(crate) kube: Kube,
}
