//! Arguments of `push`.

use clap::Args;

use super::{Data, Registry};

/// Push a bundle to a registry, and print its pinned reference on stdout.
///
/// A folder of manifests is built first. Signatures and attestations in a layout are pushed too.
/// Existing content is not sent again. A tag with other content is not moved without
/// --overwrite-tag.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Push the layout of `build`
  kubectl bundle push web-1.4.0.oci registry.example.com/team/web:1.4.0

  # Build and push
  kubectl bundle push web registry.example.com/team/web:1.4.0

  # Move a tag
  kubectl bundle push web-1.4.1.oci registry.example.com/team/web:stable --overwrite-tag")]
pub(crate) struct Push {
    /// OCI layout or archive, or folder of manifests; PATH:NAME selects one of several images
    #[arg(value_name = "LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// Target: REGISTRY/REPOSITORY:TAG
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Do not copy referrers: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Move the tag if it refers to other content
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
