//! Arguments of `status`.

use clap::Args;

use super::Status;
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, TableFormat};

/// Describe one BundleDeployment: installed content, requester, the first cause if it is not ready,
/// conditions with their messages, and the installed objects with version, last correction and
/// health, as far as you may read them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle status web

  # Objects that are not ready
  kubectl bundle status web -o json | jq '.objects[] | select(.health != null and .health != \"Ready\")'")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Output format; json and yaml print the BundleDeployment with its installed objects in
    /// `objects`
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        help_heading = "Output options"
    )]
    pub(crate) output: Option<TableFormat>,
    /// Print metadata.managedFields with -o json and -o yaml
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `status`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Status> {
        Ok(Status {
            name: self.name,
            show_managed_fields: self.show_managed_fields,
            format: self.output.map(Into::into),
            cluster: self.kube.settings(environment)?,
        })
    }
}
