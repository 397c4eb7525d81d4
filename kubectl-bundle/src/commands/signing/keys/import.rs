//! `keys import`: converts a private key of another program to cosign's format.

use std::path::PathBuf;

use bundle_trust::keys;
use zeroize::Zeroizing;

use super::pair;
use crate::failure::{self, Failure, Outcome};
use crate::system::files;
use crate::ui::Ui;
use crate::ui::password::PasswordSource;

/// Settings of `keys import`.
pub(crate) struct Import {
    /// Existing private key.
    pub(crate) key: PathBuf,
    /// Path of the new files without extension.
    pub(crate) prefix: PathBuf,
    /// Source of the new password.
    pub(crate) password: PasswordSource,
}

impl Import {
    /// Reads the key and writes both files.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let files = pair::Files::new(&self.prefix)?;
        let text = Zeroizing::new(files::read_text(&self.key)?);
        let password = self.password.get_new_password()?;
        let pair = {
            let _progress = ui.progress("encrypting the key");
            keys::import(&text, &password)
                .map_err(|finding| Failure::from(failure::in_file(finding, &self.key)))?
        };
        files.write(ui, &pair)
    }
}
