//! Arguments of `render`.

use clap::Args;

use super::{Data, Registry};

/// Print the objects that would be installed, in the order in which they are applied.
///
/// Images are pinned as the lock has them, operator bundles are converted, and charts in a folder
/// are rendered by helm. The program reads content with the same code as the pod. The objects have
/// the labels with which they are installed, and objects that name no namespace have that of -n. An
/// operator bundle is installed into that namespace as well, else into the one that it suggests.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle render registry.example.com/team/web:1.4.0

  # Compare with what is in the cluster
  kubectl bundle render ./web --name web -n team-a | kubectl diff -f -

  # The kinds and names
  kubectl bundle render ./web -o json | jq -r '.items[] | .kind + \"/\" + .metadata.name'")]
pub(crate) struct Render {
    /// A reference, an OCI layout or archive, or a folder of manifests
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// Name of the BundleDeployment, for the labels [default: the name of the package]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Namespace of the objects that name none, and of an operator bundle [default: none, and the
    /// one that the operator suggests]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Print as; JSON is one List [default: yaml]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
