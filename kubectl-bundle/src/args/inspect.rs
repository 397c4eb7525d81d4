//! Arguments of `inspect`.

use clap::Args;

use super::{Data, Registry};

/// Show what a bundle is: package, layers, images, objects, the permissions that installing it
/// takes, signatures.
///
/// The source is a reference in a registry, an OCI layout or archive, or a folder of manifests. A
/// path that exists is read as a path. Only the manifest and the small layers that hold manifests
/// are read. Images that are no bundles, and indexes of several, are shown as what they are.
/// Signatures are counted here; `verify` says whether they hold.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle inspect registry.example.com/team/web:1.4.0

  kubectl bundle inspect web-1.4.0.oci -o json

  # Every object, and whether it is made for the cluster's version
  kubectl bundle inspect web-1.4.0.oci --objects --kubernetes-version 1.34.2

  # The images with their digests
  kubectl bundle inspect registry.example.com/team/web:1.4.0 -o json | jq -r '.images[].resolved'

  # Without pulling the layers
  kubectl bundle inspect registry.example.com/team/web:1.4.0 --manifest-only")]
pub(crate) struct Inspect {
    /// A reference, an OCI layout or archive, or a folder of manifests
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// List every object, not only how many of each kind
    #[arg(long)]
    pub(crate) objects: bool,
    /// Say whether it is made for this version of Kubernetes
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<String>,
    /// Read the manifest only: no objects, images or permissions
    #[arg(long)]
    pub(crate) manifest_only: bool,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
