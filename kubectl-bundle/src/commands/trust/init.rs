//! `trust init`: a TUF repository is asked, and trusted from then on.

use std::path::PathBuf;

use super::{folders, report};
use crate::failure::Outcome;
use crate::files;
use crate::sigstore::root::{Instance, WantedRoot};
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `trust init` needs to know.
pub(crate) struct Init {
    /// The address and the `root.json` of a repository; without, those of the public instance.
    pub(crate) repository: Option<(String, PathBuf)>,
    /// Where it is kept, and how it is reached.
    pub(crate) wanted: WantedRoot,
    /// How to print.
    pub(crate) format: Option<Format>,
}

impl Init {
    /// Asks it, and keeps which it is.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let instance = match self.repository {
            Some((mirror, root)) => Instance {
                mirror,
                root: files::read_text(&root)?,
            },
            None => Instance::public(),
        };
        let folders = folders(&self.wanted)?;
        let chosen = {
            let _progress = ui.progress("asking the TUF repository");
            self.wanted.init(&instance, folders).await?
        };
        report::print(ui, self.format, &chosen)?;
        ui.note(format!("trust roots come from {} now", instance.mirror));
        Ok(())
    }
}
