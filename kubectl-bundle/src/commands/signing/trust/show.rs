//! `trust show`: prints the trust root that is used without flags.

use super::report;
use crate::failure::Outcome;
use crate::sigstore::root::TrustRootSettings;
use crate::ui::Ui;
use crate::ui::format::Format;

/// Settings of `trust show`.
pub(crate) struct Show {
    /// Storage and connection settings.
    pub(crate) wanted: TrustRootSettings,
    /// `true` if the trust root itself is printed.
    pub(crate) text: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
}

impl Show {
    /// Prints the origin, or the trust root itself.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let chosen = self.wanted.open(ui).await?;
        if self.text {
            return ui.data(chosen.text.trim_end());
        }
        report::print(ui, self.format, &chosen)
    }
}
