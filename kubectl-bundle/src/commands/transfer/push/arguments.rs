//! Arguments of `push`.

use clap::Args;

use super::Push;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags, invalid_flag, registry};

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
pub(crate) struct Arguments {
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
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `push`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Push> {
        let source = ArtifactLocation::source(&self.source)?;
        if matches!(source, ArtifactLocation::Registry(_)) {
            return Err(invalid_flag(
                "LAYOUT|ARCHIVE|DIR",
                &format!("no such file or folder: {source}"),
            )
            .hint("use `kubectl bundle copy` between registries")
            .into());
        }
        let reference = registry::reference(&self.reference)?;
        Ok(Push {
            source,
            no_referrers: self.no_referrers,
            overwrite_tag: self.overwrite_tag,
            format: self.output.format(),
            registry: self.registry.settings(environment)?.of(&reference),
            reference,
        })
    }
}
