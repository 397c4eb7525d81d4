//! `trust reset`: back to the trust root that is built in.

use super::folders;
use crate::failure::Outcome;
use crate::sigstore::root::WantedRoot;
use crate::ui::Ui;

/// What `trust reset` needs to know.
pub(crate) struct Reset {
    /// Where it is kept.
    pub(crate) wanted: WantedRoot,
}

impl Reset {
    /// Forgets which repository was trusted.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let was_there = folders(&self.wanted)?.forget()?;
        ui.note(if was_there {
            "the trust root is the one that is built in again"
        } else {
            "nothing to do: the trust root is the one that is built in"
        });
        Ok(())
    }
}
