//! Arguments of `unpack`.

use std::path::PathBuf;

use clap::Args;

use super::Unpack;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::flags::{DestinationFlags, Environment, RegistryFlags, platform};

/// Write the files of a bundle, or of any other image, to a folder.
///
/// The folder must be new or empty. It is created after all files are unpacked. Files get no write
/// permission for other users, and no setuid bit. Symbolic links to paths in the folder are
/// created. The target of an absolute link is relative to the folder. Other entries are rejected,
/// or skipped with --skip-unsafe: devices, named pipes, and links to paths outside of the folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # A bundle, to ./web
  kubectl bundle unpack registry.example.com/team/web:1.4.0 --to web

  # An archive
  kubectl bundle unpack web-1.4.0.tar --to web

  # Any image, for one platform, without its devices
  kubectl bundle unpack registry.example.com/library/debian:13 --platform linux/arm64 --skip-unsafe --to debian")]
pub(crate) struct Arguments {
    /// Reference, OCI layout or archive
    #[arg(value_name = "REF|LAYOUT|ARCHIVE")]
    pub(crate) source: String,
    /// Folder [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Platform of the image in an index, such as linux/amd64
    #[arg(long, value_name = "OS/ARCH")]
    pub(crate) platform: Option<String>,
    /// Replace a folder with content
    #[arg(long)]
    pub(crate) force: bool,
    /// Skip and report unsafe entries instead of rejecting the image
    #[arg(long)]
    pub(crate) skip_unsafe: bool,
    /// Flags for the output format.
    #[command(flatten)]
    pub(crate) output: DestinationFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `unpack`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Unpack> {
        let (target, format) = self.output.destination(self.to)?;
        Ok(Unpack {
            source: ArtifactLocation::source(&self.source)?,
            target: target.unwrap_or_else(|| ".".into()),
            platform: platform(self.platform.as_deref())?,
            force: self.force,
            skip_unsafe: self.skip_unsafe,
            format,
            registry: self.registry.settings(environment)?,
        })
    }
}
