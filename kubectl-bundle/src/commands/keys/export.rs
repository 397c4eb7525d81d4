//! `keys export`: a private key out of cosign's encrypted file, for programs that know no such file.

use std::path::PathBuf;

use bundle_trust::keys;

use crate::failure::{self, Failure, Outcome};
use crate::files;
use crate::password::Source;
use crate::ui::Ui;

/// What `keys export` needs to know.
pub(crate) struct Export {
    /// The private key.
    pub(crate) key: PathBuf,
    /// Where its password comes from.
    pub(crate) password: Source,
    /// Where it goes, readable by whoever can read the file.
    pub(crate) output: PathBuf,
}

impl Export {
    /// Opens the key, and writes it.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let text = files::read_text(&self.key)?;
        let password = self
            .password
            .get(&format!("Password for {}", self.key.display()))?;
        let plain = keys::export(&text, &password)
            .map_err(|finding| Failure::from(failure::in_file(finding, &self.key)))?;
        files::create(&self.output, plain.as_bytes(), files::SECRET)?;
        ui.note(format!(
            "private key written to {}, where nothing protects it but the file's mode",
            self.output.display()
        ));
        Ok(())
    }
}
