//! `keys public`: prints the public key of a private key.

use crate::failure::Outcome;
use crate::signer::KeySettings;
use crate::ui::Ui;

/// Settings of `keys public`.
pub(crate) struct Public {
    /// The private key.
    pub(crate) key: KeySettings,
}

impl Public {
    /// Opens the key and prints its public key.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let (_, key) = self.key.open()?;
        ui.text(&key.public().to_pem())
    }
}
