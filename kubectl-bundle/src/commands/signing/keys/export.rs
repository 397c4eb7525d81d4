//! `keys export`: decrypts a private key for programs that cannot read cosign's format.

use std::path::PathBuf;

use bundle_trust::keys;

use crate::failure::{self, Failure, Outcome};
use crate::system::files;
use crate::ui::Ui;
use crate::ui::password::PasswordSource;

/// Settings of `keys export`.
pub(crate) struct Export {
    /// The private key.
    pub(crate) key: PathBuf,
    /// Source of the password of the key.
    pub(crate) password: PasswordSource,
    /// Path of the decrypted key.
    pub(crate) output: PathBuf,
}

impl Export {
    /// Opens and writes the key.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let text = files::read_text(&self.key)?;
        let password = self
            .password
            .get(&format!("Password for {}", self.key.display()))?;
        let plain = keys::export(&text, &password)
            .map_err(|finding| Failure::from(failure::in_file(finding, &self.key)))?;
        files::create(&self.output, plain.as_bytes(), files::SECRET)?;
        ui.note(format!(
            "private key written to {}, protected only by the mode of the file",
            self.output.display()
        ));
        Ok(())
    }
}
