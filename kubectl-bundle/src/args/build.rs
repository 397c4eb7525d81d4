//! Arguments of `build`.

use std::path::PathBuf;

use clap::Args;

use super::{Data, FormatOrPath, Registry};

/// Check a folder of manifests and pack it into one OCI artifact, in an OCI image layout on disk.
///
/// The folder holds `bundle.yaml` (name, version, format, Kubernetes range) and `manifests/`; or it
/// is a Helm chart, a registry+v1 bundle of an operator, or a kustomization, with a `bundle.yaml`
/// or without. Everything that is wrong is said at once. The same folder gives the same digest on
/// every run and machine. The digest is printed on stdout.
///
/// Container images are found wherever pods and well-known custom resources name them; one with no
/// tag, or with a tag that moves (`latest`, `main`, …), is refused. With `images.lock.yaml` in the
/// folder, which --lock writes, the bundle installs the digests in it.
///
/// In a git checkout, its origin (without credentials) and, if the files are those of it, its
/// commit are recorded as annotations, unless `bundle.yaml` says them. No time is written, or where
/// SOURCE_DATE_EPOCH is set, that one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Build ./web into ./web-1.4.0.oci, named after its name and version
  kubectl bundle build web

  # Into a folder of your choice
  kubectl bundle build web --to dist/web

  # A chart, rendered by helm on this machine so that it can be checked
  kubectl bundle build web-1.4.0.tgz

  # A kustomization without bundle.yaml
  kubectl bundle build overlays/prod --name web --version 1.4.0

  # Only check
  kubectl bundle build web --dry-run

  # Look up the digest of every image, write web/images.lock.yaml, and install exactly these from now on
  kubectl bundle build web --lock

  # Take images of one repository whatever their tag is
  kubectl bundle build web --allow-mutable-tags=registry.example.com/team/**

  # Carry dashboards and a chart along
  kubectl bundle build web --resource grafana-dashboard@dashboards/ --resource chart:helm-chart@web-1.4.0.tgz

  # Put the folder on top of another bundle
  kubectl bundle build web --base registry.example.com/team/base:2.1.0

  # The digest for a script
  DIGEST=$(kubectl bundle build web)")]
pub(crate) struct Build {
    /// The folder, or a packed chart
    #[arg(value_name = "DIR|CHART")]
    pub(crate) folder: PathBuf,
    /// Name of the package, where there is no bundle.yaml [default: as the chart or operator says]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Version of the package, where there is no bundle.yaml [default: as the chart or operator
    /// says]
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<String>,
    /// Folder of the OCI layout [default: NAME-VERSION.oci]
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) to: Option<PathBuf>,
    /// Name of the image in the layout [default: the version]
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Look up the digests of all images, and write them to images.lock.yaml in the folder, to be
    /// committed
    #[arg(long)]
    pub(crate) lock: bool,
    /// Take images with a tag that moves or without one, of all repositories or those that match
    /// (`registry/path/**`)
    #[arg(
        long,
        value_name = "PATTERN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "**"
    )]
    pub(crate) allow_mutable_tags: Vec<String>,
    /// Another image to build upon: its layers stay below as they are, byte for byte, and its files
    /// are checked together with the folder's
    #[arg(long, value_name = "REF|LAYOUT|ARCHIVE")]
    pub(crate) base: Option<String>,
    /// If --base is an index, the image in it for this platform, such as linux/amd64
    #[arg(long, value_name = "OS/ARCH", requires = "base")]
    pub(crate) platform: Option<String>,
    /// A file or folder to carry along as a layer of its own, which installing never reads; may be
    /// repeated
    #[arg(long, value_name = "[NAME:]TYPE@PATH")]
    pub(crate) resource: Vec<String>,
    /// Do not record origin and commit of the git checkout that the folder is in
    #[arg(long)]
    pub(crate) no_provenance: bool,
    /// Check and pack, but write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print as data: json or yaml
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<FormatOrPath>,
    /// The same as --output
    #[arg(long, value_name = "FORMAT", value_enum, hide = true)]
    pub(crate) format: Option<Data>,
    /// Registry flags, for --lock and --base.
    #[command(flatten)]
    pub(crate) registry: Registry,
}
