//! Arguments of `check`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, Kube, Registry};

/// Say what admission would say about objects in files, before anything is sent: the same findings
/// with the same codes.
///
/// The facts are looked up with your own rights: classes, policies, whether you may use them, the
/// server's version, and the registry. The content of images is pulled and checked as `build`
/// checks it, with the target namespace and drift rules of the BundleDeployment. What could not be
/// looked up is said. Exit code 0 is admitted, 3 refused, 4 cannot tell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle check -f deployment.yaml

  # What a GitOps repository would apply
  kustomize build . | kubectl bundle check -f -

  # Without cluster and registry: only what the files themselves tell
  kubectl bundle check -f deployment.yaml --offline

  # As somebody else
  kubectl bundle check -f deployment.yaml --as ana")]
pub(crate) struct Check {
    /// A file of objects, a folder of them, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub(crate) filename: Vec<PathBuf>,
    /// Ask neither a cluster nor a registry
    #[arg(long)]
    pub(crate) offline: bool,
    /// Namespace in which the webhook runs
    #[arg(long, value_name = "NAME", default_value = "bundle-system")]
    pub(crate) system_namespace: String,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
