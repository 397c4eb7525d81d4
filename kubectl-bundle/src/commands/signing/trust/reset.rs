//! `trust reset`: returns to the built-in trust root.

use super::folders;
use crate::failure::Outcome;
use crate::sigstore::root::TrustRootSettings;
use crate::ui::Ui;

/// Settings of `trust reset`.
pub(crate) struct Reset {
    /// Storage settings.
    pub(crate) wanted: TrustRootSettings,
}

impl Reset {
    /// Deletes the stored selection of the TUF repository.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let was_there = folders(&self.wanted)?.delete_instance()?;
        ui.note(if was_there {
            "using the built-in trust root again"
        } else {
            "nothing to do: the built-in trust root is in use"
        });
        Ok(())
    }
}
