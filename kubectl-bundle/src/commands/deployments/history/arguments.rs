//! Arguments of `history`.

use clap::Args;

use super::History;
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, ListFlags};

/// List the revisions of a BundleDeployment: the installed content and former content that is kept,
/// oldest first.
///
/// A revision gets its number when its content is installed. If former content is installed again,
/// it gets a new number. spec.rollout.history is the number of former revisions that are kept.
/// -o name prints the Bundles of the revisions.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle history web

  # One revision, with its configuration
  kubectl bundle history web --revision 2

  # The digest of each revision
  kubectl bundle history web -o json | jq -r '.items[].digest'")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Describe only this revision: a number, or the name of its Bundle
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
    /// Output flags.
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `history`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<History> {
        Ok(History {
            name: self.name,
            revision: self.revision,
            no_headers: self.list.no_headers,
            format: self.list.output.map(Into::into),
            cluster: self.kube.settings(environment)?,
        })
    }
}
