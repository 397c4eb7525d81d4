//! `inspect`: of what.
//! Not here: what is shown.

use clap::Args;

use super::{Data, Registry};

/// Show what a bundle is: package, Kubernetes range, layers, objects by kind, signatures.
///
/// The source is a reference in a registry, an OCI layout, or a folder of manifests. A path that exists is read as a path.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle inspect registry.example.com/team/web:1.4.0

  kubectl bundle inspect web-1.4.0.oci -o json

  # Without pulling the layers
  kubectl bundle inspect registry.example.com/team/web:1.4.0 --manifest-only")]
pub(crate) struct Inspect {
    /// A reference, an OCI layout, or a folder of manifests
    #[arg(value_name = "REF|LAYOUT|DIR")]
    pub(crate) source: String,
    /// Read the manifest only: no objects
    #[arg(long)]
    pub(crate) manifest_only: bool,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// How to talk to registries.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
