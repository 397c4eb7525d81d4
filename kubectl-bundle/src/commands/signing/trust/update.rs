//! `trust update`: refreshes the TUF repository, even if it was refreshed recently.

use bundle_core::diagnostic::{Finding, codes};

use super::{folders, report};
use crate::failure::Outcome;
use crate::sigstore::root::TrustRootSettings;
use crate::ui::Ui;
use crate::ui::format::Format;

/// Settings of `trust update`.
pub(crate) struct Update {
    /// Storage and connection settings.
    pub(crate) wanted: TrustRootSettings,
    /// Output format.
    pub(crate) format: Option<Format>,
}

impl Update {
    /// Refreshes the repository, and prints the origin and properties of its trust root.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let folders = folders(&self.wanted)?;
        let Some(instance) = folders.instance()? else {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                "no TUF repository is set: the built-in trust root is in use",
            )
            .hint("kubectl bundle trust init")
            .into());
        };
        let chosen = {
            let _progress = ui.progress("refreshing the TUF repository");
            self.wanted.update(&instance, folders).await?
        };
        report::print(ui, self.format, &chosen)
    }
}
