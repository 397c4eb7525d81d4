//! `keys generate`: creates two new files. If one file cannot be created, no file is created.

use std::path::PathBuf;

use bundle_trust::keys::{self, KeyKind};

use super::pair;
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::password::PasswordSource;

/// Settings of `keys generate`.
pub(crate) struct Generate {
    /// Path of the files without extension.
    pub(crate) prefix: PathBuf,
    /// Kind of key.
    pub(crate) kind: KeyKind,
    /// Source of the password.
    pub(crate) password: PasswordSource,
}

impl Generate {
    /// Generates the keys and writes both files.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let files = pair::Files::new(&self.prefix)?;
        let password = self.password.get_new_password()?;
        let pair = {
            let _progress = ui.progress("creating a key pair");
            keys::generate(self.kind, &password)?
        };
        files.write(ui, &pair)
    }
}
