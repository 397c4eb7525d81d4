//! `trust show`: which trust root counts where no flag names one.

use super::report;
use crate::failure::Outcome;
use crate::sigstore::root::WantedRoot;
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `trust show` needs to know.
pub(crate) struct Show {
    /// Where it is kept, and how it is reached.
    pub(crate) wanted: WantedRoot,
    /// Print the root itself.
    pub(crate) text: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
}

impl Show {
    /// Prints where it comes from, or the root itself.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let chosen = self.wanted.open(ui).await?;
        if self.text {
            return ui.data(chosen.text.trim_end());
        }
        report::print(ui, self.format, &chosen)
    }
}
