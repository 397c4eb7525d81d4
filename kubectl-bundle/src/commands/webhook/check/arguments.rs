//! Arguments of `check`.

use std::path::PathBuf;

use clap::Args;

use super::{Check, OnlineSettings};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, OutputFlags, RegistryFlags};

/// Review objects in files before they are sent. The findings and codes are the same as in
/// admission.
///
/// The command looks up the facts with your own permissions: classes, policies, access reviews, the
/// version of the server, and the registry. The content of images is pulled. The content is checked
/// as by `build`, with the target namespace and drift rules of the BundleDeployment. Failed lookups
/// are reported. Exit code 0 means admitted, 3 rejected, 4 unknown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle check -f deployment.yaml

  # The objects of a GitOps repository
  kustomize build . | kubectl bundle check -f -

  # Without cluster and registry
  kubectl bundle check -f deployment.yaml --offline

  # As another user
  kubectl bundle check -f deployment.yaml --as ana")]
pub(crate) struct Arguments {
    /// File of objects, folder of such files, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub(crate) filename: Vec<PathBuf>,
    /// Do not use a cluster or a registry
    #[arg(long)]
    pub(crate) offline: bool,
    /// Namespace of the webhook
    #[arg(long, value_name = "NAME", default_value = "bundle-system")]
    pub(crate) system_namespace: String,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `check`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Check> {
        Ok(Check {
            files: self.filename,
            online: if self.offline {
                None
            } else {
                Some(OnlineSettings {
                    cluster: self.kube.settings(environment)?,
                    registry: self.registry.settings(environment)?,
                })
            },
            system_namespace: self.system_namespace,
            format: self.output.format(),
        })
    }
}
