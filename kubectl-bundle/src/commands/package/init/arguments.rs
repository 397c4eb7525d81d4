//! Arguments of `init`.

use std::path::PathBuf;

use clap::Args;

use super::Init;
use crate::artifact::input::FallbackMetadata;

/// Write a bundle.yaml for the content of a folder, or a small working example for an empty folder.
///
/// The command recognizes a folder with manifests/, a Helm chart, a registry+v1 bundle and a
/// kustomization. It reads name, version and required APIs from the folder. No file is moved.
/// Existing files are overwritten only with --force. The written paths are printed on stdout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # An example in ./web
  kubectl bundle init web

  # A bundle.yaml next to ./manifests
  kubectl bundle init --name web --version 1.4.0

  # For a chart, without writing
  kubectl bundle init charts/web --dry-run")]
pub(crate) struct Arguments {
    /// Folder. A missing folder is created
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Name of the package [default: from the content, else the name of the folder]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Version of the package [default: from the content, else 0.1.0]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// Write nothing
    #[arg(long)]
    dry_run: bool,
}

impl Arguments {
    /// Returns the settings of `init`.
    pub(crate) fn settings(self) -> Init {
        Init {
            folder: self.folder,
            known: FallbackMetadata {
                name: self.name,
                version: self.version,
                default: None,
            },
            force: self.force,
            dry_run: self.dry_run,
        }
    }
}
