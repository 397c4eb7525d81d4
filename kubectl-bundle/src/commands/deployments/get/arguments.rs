//! Arguments of `get`.

use clap::Args;

use super::Get;
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, ListFlags};

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
pub(crate) struct Arguments {
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
    /// Output flags.
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `get`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Get> {
        Ok(Get {
            names: self.names,
            watch: self.watch,
            no_headers: self.list.no_headers,
            show_managed_fields: self.show_managed_fields,
            format: self.list.output.map(Into::into),
            cluster: self.kube.settings(environment)?,
        })
    }
}
