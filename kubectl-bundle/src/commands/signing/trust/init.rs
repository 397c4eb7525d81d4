//! `trust init`: reads a TUF repository. Later commands use this repository.

use std::path::PathBuf;

use super::{folders, report};
use crate::failure::Outcome;
use crate::sigstore::root::{Instance, TrustRootSettings};
use crate::system::files;
use crate::ui::Ui;
use crate::ui::format::Format;

/// Settings of `trust init`.
pub(crate) struct Init {
    /// URL and `root.json` of a repository; `None` means the public instance.
    pub(crate) repository: Option<(String, PathBuf)>,
    /// Storage and connection settings.
    pub(crate) settings: TrustRootSettings,
    /// Output format.
    pub(crate) format: Option<Format>,
}

impl Init {
    /// Reads the repository and stores it as the trusted repository.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let instance = match self.repository {
            Some((mirror, root)) => Instance {
                mirror,
                root: files::read_text(&root)?,
            },
            None => Instance::public(),
        };
        let folders = folders(&self.settings)?;
        let chosen = {
            let _progress = ui.progress("refreshing the TUF repository");
            self.settings.init(&instance, folders).await?
        };
        report::print(ui, self.format, &chosen)?;
        ui.note(format!("using trust roots from {}", instance.mirror));
        Ok(())
    }
}
