//! Arguments of `check`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, Kube, Registry};

/// Review objects in files as admission would, before they are sent: the findings and codes are the
/// same.
///
/// The facts are looked up with your own permissions: classes, policies, access reviews, the
/// server's version, and the registry. The content of images is pulled and checked as `build`
/// checks it, with the target namespace and drift rules of the BundleDeployment. Failed lookups are
/// reported. Exit code 0 means admitted, 3 refused, 4 cannot tell.
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
pub(crate) struct Check {
    /// File of objects, folder of such files, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub(crate) filename: Vec<PathBuf>,
    /// Use neither a cluster nor a registry
    #[arg(long)]
    pub(crate) offline: bool,
    /// Namespace of the webhook
    #[arg(long, value_name = "NAME", default_value = "bundle-system")]
    pub(crate) system_namespace: String,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
