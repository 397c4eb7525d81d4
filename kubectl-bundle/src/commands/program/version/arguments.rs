//! Arguments of `version`.

use clap::Args;

use super::Version;
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, OutputFlags};

/// Print the versions of this program, of the cluster and of the webhook in the cluster.
///
/// The version of the webhook is the tag of the image of Deployment `bundle-webhook`. To read the
/// version, you need permission to get this Deployment.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # This program and the cluster of the current context
  kubectl bundle version

  # Only this program, without a request
  kubectl bundle version --client")]
pub(crate) struct Arguments {
    /// Do not connect to the cluster
    #[arg(long)]
    pub(crate) client: bool,
    /// Namespace of the webhook
    #[arg(long, value_name = "NAME", default_value = "bundle-system")]
    pub(crate) system_namespace: String,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `version`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Version> {
        Ok(Version {
            cluster: if self.client {
                None
            } else {
                Some(self.kube.settings(environment)?)
            },
            system_namespace: self.system_namespace,
            format: self.output.format(),
        })
    }
}
