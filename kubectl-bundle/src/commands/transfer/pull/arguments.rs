//! Arguments of `pull`.

use std::path::PathBuf;

use clap::Args;

use super::Pull;
use crate::artifact::location::ArtifactLocation;
use crate::commands::transfer::arguments::CopyFlags;
use crate::failure::Outcome;
use crate::flags::{DestinationFlags, Environment, RegistryFlags, invalid_flag, registry};

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
pub(crate) struct Arguments {
    /// Reference
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Layout folder, or archive if the path ends in .tar [default: NAME-TAG.oci]
    #[arg(long, value_name = "LAYOUT|ARCHIVE")]
    pub(crate) to: Option<PathBuf>,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) selection: CopyFlags,
    /// Move the name in the layout if it refers to other content
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Flags for the output format.
    #[command(flatten)]
    pub(crate) output: DestinationFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `pull`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Pull> {
        let reference = registry::reference(&self.reference)?;
        let (to, format) = self.output.destination(self.to)?;
        let output = if let Some(to) = &to {
            to.display().to_string()
        } else {
            let base = reference
                .repository()
                .rsplit('/')
                .next()
                .unwrap_or_default();
            let tag = reference.tag().map(str::to_owned);
            let tag = tag.or_else(|| Some(reference.digest()?.hex().chars().take(12).collect()));
            format!("./{base}-{}.oci", tag.unwrap_or_default())
        };
        let target = ArtifactLocation::target(&output)?;
        if matches!(target, ArtifactLocation::Registry(_)) {
            return Err(invalid_flag("--to", "it is a reference in a registry")
                .hint("use `kubectl bundle copy` between registries")
                .into());
        }
        Ok(Pull {
            reference,
            target,
            selection: self.selection.options()?,
            overwrite_tag: self.overwrite_tag,
            format,
            registry: self.registry.settings(environment)?,
        })
    }
}
