//! Arguments of `build`.

use std::path::PathBuf;

use clap::Args;

use super::Build;
use crate::artifact::input::FallbackMetadata;
use crate::artifact::location::ArtifactLocation;
use crate::artifact::packing;
use crate::failure::Outcome;
use crate::flags::{DestinationFlags, Environment, ImageFlags, RegistryFlags, platform};

/// Check a folder of manifests and pack it into an OCI artifact, in an OCI image layout on disk.
///
/// The folder contains `bundle.yaml` (name, version, format, Kubernetes range) and `manifests/`.
/// The folder can also be a Helm chart, a registry+v1 operator bundle, or a kustomization, with or
/// without a `bundle.yaml`. All errors are reported together. The same folder produces the same
/// digest in every run and on every machine. The digest is printed on stdout.
///
/// Container images are found in pods and in well-known custom resources. An image without a tag,
/// or with a moving tag (`latest`, `main`, …), is rejected. If the folder has an
/// `images.lock.yaml`, which --lock writes, the bundle installs the digests in this file.
///
/// In a git checkout, annotations record the origin without credentials. If the files are
/// unmodified, annotations also record the commit. Values in `bundle.yaml` have precedence. A
/// timestamp is written only if SOURCE_DATE_EPOCH is set.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Build ./web into ./web-1.4.0.oci, named after its name and version
  kubectl bundle build web

  # To another folder
  kubectl bundle build web --to dist/web

  # A chart, which helm renders on this machine for the checks
  kubectl bundle build web-1.4.0.tgz

  # A kustomization without bundle.yaml
  kubectl bundle build overlays/prod --name web --version 1.4.0

  # Only check
  kubectl bundle build web --dry-run

  # Resolve the digest of every image, and write web/images.lock.yaml
  kubectl bundle build web --lock

  # Allow moving tags in one repository
  kubectl bundle build web --allow-mutable-tags=registry.example.com/team/**

  # Add dashboards and a chart
  kubectl bundle build web --resource grafana-dashboard@dashboards/ --resource chart:helm-chart@web-1.4.0.tgz

  # Use another bundle as the base
  kubectl bundle build web --base registry.example.com/team/base:2.1.0

  # Use the digest in a script
  DIGEST=$(kubectl bundle build web)")]
pub(crate) struct Arguments {
    /// Folder, or packed chart
    #[arg(value_name = "DIR|CHART")]
    pub(crate) folder: PathBuf,
    /// Name of the package, if there is no bundle.yaml [default: the name of the chart or operator]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Version of the package, if there is no bundle.yaml [default: the version of the chart or
    /// operator]
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<String>,
    /// Folder of the OCI layout [default: NAME-VERSION.oci]
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) to: Option<PathBuf>,
    /// Name of the image in the layout [default: the version]
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Resolve the digests of all images, and write the digests to images.lock.yaml in the folder.
    /// Commit this file
    #[arg(long)]
    pub(crate) lock: bool,
    /// Flag for container images.
    #[command(flatten)]
    pub(crate) images: ImageFlags,
    /// Base image. Its layers stay unchanged, and its files are checked together with the files of
    /// the folder
    #[arg(long, value_name = "REF|LAYOUT|ARCHIVE")]
    pub(crate) base: Option<String>,
    /// Platform of the base image, such as linux/amd64, if --base is an index
    #[arg(long, value_name = "OS/ARCH", requires = "base")]
    pub(crate) platform: Option<String>,
    /// Add a file or folder as a separate layer, which is not installed; may be repeated
    #[arg(long, value_name = "[NAME:]TYPE@PATH")]
    pub(crate) resource: Vec<String>,
    /// Do not record origin and commit of the git checkout of the folder
    #[arg(long)]
    pub(crate) no_provenance: bool,
    /// Check and pack, but write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Flags for the output format.
    #[command(flatten)]
    pub(crate) output: DestinationFlags,
    /// Registry flags, for --lock and --base.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `build`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Build> {
        let (output, format) = self.output.destination(self.to)?;
        let platform = platform(self.platform.as_deref())?;
        let base = self
            .base
            .as_deref()
            .map(ArtifactLocation::source)
            .transpose()?;
        let resources = self.resource.iter().map(|text| packing::resource(text));
        let registry = self.registry.settings(environment)?;
        Ok(Build {
            folder: self.folder,
            known: FallbackMetadata {
                name: self.name,
                version: self.version,
                default: None,
            },
            base: base.map(|location| (location, platform)),
            resources: resources.collect::<Result<_, _>>()?,
            no_provenance: self.no_provenance,
            allowed: self.images.settings()?,
            lock: self.lock,
            registry,
            output,
            tag: self.tag,
            dry_run: self.dry_run,
            format,
        })
    }
}
