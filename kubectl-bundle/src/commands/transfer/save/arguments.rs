//! Arguments of `save`.

use std::path::PathBuf;

use clap::Args;

use super::Save;
use crate::commands::transfer::arguments::CopyFlags;
use crate::failure::Outcome;
use crate::flags::{DestinationFlags, Environment, RegistryFlags, invalid_flag, registry};

/// Save artifacts with their signatures, attestations and images to one file, for clusters without
/// network access.
///
/// The file is an OCI layout in a tar. `kubectl bundle load`, skopeo, crane and oras read this
/// file. The same content produces the same file. With --sources-only the file is a small list of
/// digests. `load` reads the content of such a list from a registry and verifies the content.
///
/// With --images, the command reads each image in the lock file of a package with your
/// credentials for the registry of the image. The author of the package chooses these images.
/// Therefore do not write images of an untrusted package to a target that other users can read. The
/// command prints each registry that is not the registry of the package.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # A package with all its images
  kubectl bundle save registry.example.com/team/web:1.4.0 --images --to web.tar

  # Several packages, for one platform
  kubectl bundle save registry.example.com/team/web:1.4.0 registry.example.com/team/db:2.0.0 --images --platform linux/amd64 --to all.tar

  # Only the list of digests
  kubectl bundle save registry.example.com/team/web:1.4.0 --images --sources-only --to web.sources.yaml")]
pub(crate) struct Arguments {
    /// References
    #[arg(value_name = "REF", required = true)]
    pub(crate) references: Vec<String>,
    /// File
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Flags for platforms and referrers.
    #[command(flatten)]
    pub(crate) selection: CopyFlags,
    /// Also save every container image that the lock files of the packages list
    #[arg(long)]
    pub(crate) images: bool,
    /// Write a list of digests instead of content
    #[arg(long)]
    pub(crate) sources_only: bool,
    /// Flags for the output format.
    #[command(flatten)]
    pub(crate) output: DestinationFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `save`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Save> {
        let references = self.references.iter().map(|text| registry::reference(text));
        let (output, format) = self.output.destination(self.to)?;
        let Some(output) = output else {
            return Err(invalid_flag("--to", "a target file is required")
                .hint("set a new file: --to FILE.tar")
                .into());
        };
        Ok(Save {
            references: references.collect::<Result<_, _>>()?,
            output,
            selection: self.selection.options()?,
            images: self.images,
            sources_only: self.sources_only,
            format,
            registry: self.registry.settings(environment)?,
        })
    }
}
