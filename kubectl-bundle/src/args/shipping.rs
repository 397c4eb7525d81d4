//! Arguments of `copy`, `pull`, `save` and `load`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, FormatOrPath, Registry};

/// Flags for platforms and referrers.
#[derive(Debug, Default, Args)]
pub(crate) struct CopyFlags {
    /// Do not copy referrers: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Copy only images for this platform of an index, such as linux/amd64; may be repeated
    /// [default: all]
    #[arg(long, value_name = "OS/ARCH", value_delimiter = ',')]
    pub(crate) platform: Vec<String>,
}

/// Copy an artifact between registries, OCI layouts and archives, with its signatures and
/// attestations.
///
/// Nothing is rewritten: the digest stays the same. Existing content is not sent again. Manifests
/// are written after everything they refer to, and the tag last, so that an interrupted copy leaves
/// no incomplete artifact under a name.
///
/// An existing path is a path; a path that does not exist is recognized by its form (./…, /…,
/// ….oci, ….tar) or by oci:PATH and oci-archive:PATH. PATH:NAME or PATH@DIGEST select one of
/// several images in a layout or archive.
///
/// With --platform an index keeps its digest, so it still refers to the images that are not copied.
/// Layouts and archives support this; most registries reject it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Between registries, with signatures
  kubectl bundle copy registry.example.com/team/web:1.4.0 other.example.com/mirror/web:1.4.0

  # To an archive, and from there to a registry
  kubectl bundle copy registry.example.com/team/web:1.4.0 web.tar
  kubectl bundle copy web.tar other.example.com/web:1.4.0

  # With every image of the package
  kubectl bundle copy registry.example.com/team/web:1.4.0 other.example.com/web:1.4.0 --images --images-to other.example.com/mirror")]
pub(crate) struct Copy {
    /// Source: reference, OCI layout or archive, or folder of manifests
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// Target: reference, OCI layout or archive
    #[arg(value_name = "REF|LAYOUT|ARCHIVE")]
    pub(crate) target: String,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) selection: CopyFlags,
    /// Also copy every container image of the package, by its digest in the lock file
    #[arg(long)]
    pub(crate) images: bool,
    /// Registry and path below which the images are copied, if the target is a registry
    #[arg(long, value_name = "REGISTRY[/PREFIX]", requires = "images")]
    pub(crate) images_to: Option<String>,
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

/// Pull an artifact from a registry into an OCI layout or archive, with its signatures and
/// attestations.
///
/// The pinned reference is printed on stdout. Content is added to an existing layout, and existing
/// content is not fetched again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # To ./web-1.4.0.oci
  kubectl bundle pull registry.example.com/team/web:1.4.0

  # To an archive
  kubectl bundle pull registry.example.com/team/web:1.4.0 --to web.tar")]
pub(crate) struct Pull {
    /// Reference
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Layout folder, or archive if it ends in .tar [default: NAME-TAG.oci]
    #[arg(long, value_name = "LAYOUT|ARCHIVE")]
    pub(crate) to: Option<PathBuf>,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) selection: CopyFlags,
    /// Move the name in the layout if it refers to other content
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Output format: json or yaml
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<FormatOrPath>,
    /// Alias of --output
    #[arg(long, value_name = "FORMAT", value_enum, hide = true)]
    pub(crate) format: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Save artifacts with their signatures, attestations and images to one file, for clusters without
/// network access.
///
/// The file is an OCI layout in a tar: `kubectl bundle load`, skopeo, crane and oras read it. The
/// same content produces the same file. With --sources-only the file is a small list of digests,
/// whose content `load` reads from a registry and verifies.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # A package with all its images
  kubectl bundle save registry.example.com/team/web:1.4.0 --images --to web.tar

  # Several packages, for one platform
  kubectl bundle save registry.example.com/team/web:1.4.0 registry.example.com/team/db:2.0.0 --images --platform linux/amd64 --to all.tar

  # Only the list of digests
  kubectl bundle save registry.example.com/team/web:1.4.0 --images --sources-only --to web.sources.yaml")]
pub(crate) struct Save {
    /// References
    #[arg(value_name = "REF", required = true)]
    pub(crate) references: Vec<String>,
    /// File
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) selection: CopyFlags,
    /// Also save every container image of the packages, by its digest in the lock file
    #[arg(long)]
    pub(crate) images: bool,
    /// Write a list of digests instead of content
    #[arg(long)]
    pub(crate) sources_only: bool,
    /// Output format: json or yaml
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<FormatOrPath>,
    /// Alias of --output
    #[arg(long, value_name = "FORMAT", value_enum, hide = true)]
    pub(crate) format: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Load a file of `save` into a registry, below one prefix, with unchanged digests and signatures.
///
/// registry.example.com/team/web:1.4.0 becomes PREFIX/registry.example.com/team/web:1.4.0; the port
/// of a registry follows an underscore. A table of old and new references is printed, and
/// --mirrors-out writes the mirror configuration for a cluster: registries.conf for CRI-O and
/// podman, and a certs.d with hosts.toml for containerd.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle load web.tar --to mirror.example.com:5000/air-gap --mirrors-out mirrors

  # A list of digests, with the content of the original registries
  kubectl bundle load web.sources.yaml --to mirror.example.com/all

  # A list of digests, with the content of another loaded registry
  kubectl bundle load web.sources.yaml --to inner.example.com --from mirror.example.com/all")]
pub(crate) struct Load {
    /// Archive or layout, or list of digests
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Target: REGISTRY[/PREFIX]
    #[arg(long, value_name = "REGISTRY[/PREFIX]")]
    pub(crate) to: String,
    /// Registry prefix that has the content of a list [default: the original references]
    #[arg(long, value_name = "REGISTRY[/PREFIX]")]
    pub(crate) from: Option<String>,
    /// Write the mirror configuration: all formats to a folder, or registries.conf to a file that
    /// ends in .conf
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) mirrors_out: Option<PathBuf>,
    /// Do not copy referrers: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Move tags that refer to other content
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
