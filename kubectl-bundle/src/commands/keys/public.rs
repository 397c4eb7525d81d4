//! `keys public`: the public half of a private key, wherever that is, on stdout.

use crate::failure::Outcome;
use crate::signer::Secret;
use crate::ui::Ui;

/// What `keys public` needs to know.
pub(crate) struct Public {
    /// The private key.
    pub(crate) key: Secret,
}

impl Public {
    /// Opens the key and prints its public half.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let (_, key) = self.key.open()?;
        ui.text(&key.public().to_pem())
    }
}
