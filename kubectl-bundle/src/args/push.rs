//! Arguments of `push`.

use clap::Args;

use super::{Data, Registry};

/// Push a bundle to a registry, and print its pinned reference on stdout.
///
/// A folder of manifests is built first. Signatures and attestations in a layout go along. Content
/// that is there already is not sent again. A tag that holds other content is left alone unless
/// --overwrite-tag is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Push what `build` made
  kubectl bundle push web-1.4.0.oci registry.example.com/team/web:1.4.0

  # Build and push in one go
  kubectl bundle push web registry.example.com/team/web:1.4.0

  # Move a tag
  kubectl bundle push web-1.4.1.oci registry.example.com/team/web:stable --overwrite-tag")]
pub(crate) struct Push {
    /// An OCI layout or archive, or a folder of manifests; PATH:NAME is one image of several
    #[arg(value_name = "LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// Where to: REGISTRY/REPOSITORY:TAG
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Leave behind what refers to it: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Let the tag name this content even if it names other content now
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
