//! Arguments of `__man`.

use std::path::PathBuf;

use clap::Args;

use super::Man;

/// Write a man page for each verb. Releases contain these pages.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder for the pages
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

impl Arguments {
    /// Returns the settings of `__man`.
    pub(crate) fn settings(self, root: clap::Command) -> Man {
        Man { root, to: self.to }
    }
}
