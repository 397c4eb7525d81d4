//! Arguments and settings of `init`.

use std::path::PathBuf;

use clap::Args;

use super::Init;
use crate::input::Known;

/// Write what a bundle needs: a bundle.yaml for what lies in the folder, or a small working example
/// where nothing does.
///
/// A folder of manifests/, a Helm chart, a registry+v1 bundle and a kustomization are recognised,
/// and name, version and needs are read from them. Nothing is moved, and nothing is overwritten
/// without --force. The paths that were written are printed on stdout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # An example in ./web
  kubectl bundle init web

  # A bundle.yaml beside ./manifests
  kubectl bundle init --name web --version 1.4.0

  # For a chart; only show what would be written
  kubectl bundle init charts/web --dry-run")]
pub(crate) struct Arguments {
    /// The folder; made if it is not there
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Name of the package [default: from the content, else the folder's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Version of the package [default: from the content, else 0.1.0]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Overwrite files that are there
    #[arg(long)]
    force: bool,
    /// Write nothing
    #[arg(long)]
    dry_run: bool,
}

impl From<Arguments> for Init {
    fn from(typed: Arguments) -> Self {
        Self {
            folder: typed.folder,
            known: Known {
                name: typed.name,
                version: typed.version,
            },
            force: typed.force,
            dry_run: typed.dry_run,
        }
    }
}
