//! Arguments of `inspect`.

use bundle_core::version::ServerVersion;
use clap::Args;

use super::Inspect;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags};

/// Describe a bundle: package, layers, images, objects, the permissions that an installation
/// requires, and signatures.
///
/// The source is a reference in a registry, an OCI layout or archive, or a folder of manifests. A
/// path that exists is read as a path. Only the manifest and the small layers that contain
/// manifests are read. Images and indexes that are not bundles can be described too. Signatures are
/// counted, but not verified. To verify signatures, use `verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle inspect registry.example.com/team/web:1.4.0

  kubectl bundle inspect web-1.4.0.oci -o json

  # Every object, and the compatibility with a Kubernetes version
  kubectl bundle inspect web-1.4.0.oci --objects --kubernetes-version 1.34.2

  # The images with their digests
  kubectl bundle inspect registry.example.com/team/web:1.4.0 -o json | jq -r '.images[].resolved'

  # Without pulling the layers
  kubectl bundle inspect registry.example.com/team/web:1.4.0 --manifest-only")]
pub(crate) struct Arguments {
    /// Reference, OCI layout or archive, or folder of manifests
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// List every object instead of the number by kind
    #[arg(long)]
    pub(crate) objects: bool,
    /// Check compatibility with this version of Kubernetes
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<String>,
    /// Read only the manifest: no objects, images or permissions
    #[arg(long)]
    pub(crate) manifest_only: bool,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `inspect`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Inspect> {
        let location = ArtifactLocation::source(&self.source)?;
        let settings = self.registry.settings(environment)?;
        let registry = match &location {
            ArtifactLocation::Registry(reference) => settings.of(reference),
            _ => settings,
        };
        Ok(Inspect {
            location,
            objects: self.objects,
            kubernetes: self
                .kubernetes_version
                .map(|text| ServerVersion::parse(&text))
                .transpose()?,
            manifest_only: self.manifest_only,
            format: self.output.format(),
            registry,
        })
    }
}
