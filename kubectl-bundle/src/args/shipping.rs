//! Arguments of `copy`, `pull`, `save` and `load`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, FormatOrPath, Registry};

/// Flags for platforms and referrers.
#[derive(Debug, Default, Args)]
pub(crate) struct Along {
    /// Leave behind what refers to it: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Of an index, take only images for this platform, such as linux/amd64; may be repeated
    /// [default: all]
    #[arg(long, value_name = "OS/ARCH", value_delimiter = ',')]
    pub(crate) platform: Vec<String>,
}

/// Copy an artifact between registries, OCI layouts and archives, with its signatures and
/// attestations.
///
/// Nothing is rewritten: the digest at the end is the digest at the beginning. What the target has
/// is not sent again. Manifests come after all that they name and the tag comes last, so that an
/// interrupted copy leaves no half of it under a name.
///
/// A path that exists is a path; one that does not is known by its looks (./…, /…, ….oci, ….tar) or
/// by oci:PATH and oci-archive:PATH. An image of several in one layout or archive is PATH:NAME or
/// PATH@DIGEST.
///
/// With --platform an index keeps its digest, so it still names the images that were left out.
/// Layouts and archives may be so; most registries refuse it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Between registries, with signatures
  kubectl bundle copy registry.example.com/team/web:1.4.0 other.example.com/mirror/web:1.4.0

  # Into an archive, and from it into a registry
  kubectl bundle copy registry.example.com/team/web:1.4.0 web.tar
  kubectl bundle copy web.tar other.example.com/web:1.4.0

  # With every image that the package runs
  kubectl bundle copy registry.example.com/team/web:1.4.0 other.example.com/web:1.4.0 --images --images-to other.example.com/mirror")]
pub(crate) struct Copy {
    /// What: a reference, an OCI layout or archive, or a folder of manifests
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// Where to: a reference, an OCI layout or an archive
    #[arg(value_name = "REF|LAYOUT|ARCHIVE")]
    pub(crate) target: String,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) along: Along,
    /// Also copy every container image of the package, each by the digest of its lock
    #[arg(long)]
    pub(crate) images: bool,
    /// Below which registry and path the images go, where the target is a registry
    #[arg(long, value_name = "REGISTRY[/PREFIX]", requires = "images")]
    pub(crate) images_to: Option<String>,
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

/// Pull an artifact from a registry into an OCI layout or archive, with its signatures and
/// attestations.
///
/// The pinned reference is printed on stdout. A layout that is there is added to, and what it has
/// is not fetched again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Into ./web-1.4.0.oci, named after repository and tag
  kubectl bundle pull registry.example.com/team/web:1.4.0

  # Into one file
  kubectl bundle pull registry.example.com/team/web:1.4.0 --to web.tar")]
pub(crate) struct Pull {
    /// What
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Layout folder, or archive if it ends in .tar [default: NAME-TAG.oci]
    #[arg(long, value_name = "LAYOUT|ARCHIVE")]
    pub(crate) to: Option<PathBuf>,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) along: Along,
    /// Let the name in the layout name this content even if it names other content now
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Print as data: json or yaml
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<FormatOrPath>,
    /// The same as --output
    #[arg(long, value_name = "FORMAT", value_enum, hide = true)]
    pub(crate) format: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Save artifacts with their signatures, attestations and images in one file, to be carried to
/// where there is no network.
///
/// The file is an OCI layout in a tar: `kubectl bundle load`, skopeo, crane and oras read it. The
/// same content gives the same file. With --sources-only the file is a small list of digests
/// instead, which `load` fills from a registry and verifies.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # A package with all of its images
  kubectl bundle save registry.example.com/team/web:1.4.0 --images --to web.tar

  # Several packages, for one kind of machine
  kubectl bundle save registry.example.com/team/web:1.4.0 registry.example.com/team/db:2.0.0 --images --platform linux/amd64 --to all.tar

  # Only the list of digests
  kubectl bundle save registry.example.com/team/web:1.4.0 --images --sources-only --to web.sources.yaml")]
pub(crate) struct Save {
    /// What
    #[arg(value_name = "REF", required = true)]
    pub(crate) references: Vec<String>,
    /// The file
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) along: Along,
    /// Also save every container image of the packages, each by the digest of its lock
    #[arg(long)]
    pub(crate) images: bool,
    /// Write a list of digests instead of content
    #[arg(long)]
    pub(crate) sources_only: bool,
    /// Print as data: json or yaml
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<FormatOrPath>,
    /// The same as --output
    #[arg(long, value_name = "FORMAT", value_enum, hide = true)]
    pub(crate) format: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Load what `save` wrote into a registry, all of it below one prefix, with digests and signatures
/// as they were.
///
/// registry.example.com/team/web:1.4.0 goes to PREFIX/registry.example.com/team/web:1.4.0; the port
/// of a registry follows an underscore. A table of old and new is printed, and --mirrors-out writes
/// what makes a cluster find the images there: registries.conf for CRI-O and podman, and a certs.d
/// with hosts.toml for containerd.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle load web.tar --to mirror.example.com:5000/air-gap --mirrors-out mirrors

  # From a list of digests, out of the registries that it names
  kubectl bundle load web.sources.yaml --to mirror.example.com/all

  # From a list of digests, out of a registry that `load` has filled before
  kubectl bundle load web.sources.yaml --to inner.example.com --from mirror.example.com/all")]
pub(crate) struct Load {
    /// An archive or layout, or a list of digests
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Where to
    #[arg(long, value_name = "REGISTRY[/PREFIX]")]
    pub(crate) to: String,
    /// Of a list: the registry that has it all below one prefix [default: the places that the list
    /// names]
    #[arg(long, value_name = "REGISTRY[/PREFIX]")]
    pub(crate) from: Option<String>,
    /// Write the mirrors that a cluster has to know: all forms into a folder, or registries.conf
    /// into a file that ends in .conf
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) mirrors_out: Option<PathBuf>,
    /// Leave behind what refers to the artifacts: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Let tags name this content even if they name other content now
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
