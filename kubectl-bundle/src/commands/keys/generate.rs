//! `keys generate`: a pair of files that did not exist before, or none.

use std::path::PathBuf;

use bundle_trust::keys::{self, KeyKind};

use super::pair;
use crate::failure::Outcome;
use crate::password::Source;
use crate::ui::Ui;

/// What `keys generate` needs to know.
pub(crate) struct Generate {
    /// Path of the files, without their endings.
    pub(crate) prefix: PathBuf,
    /// Kind of key.
    pub(crate) kind: KeyKind,
    /// Where the password comes from.
    pub(crate) password: Source,
}

impl Generate {
    /// Makes the keys and writes both files.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let files = pair::Files::new(&self.prefix)?;
        let password = self.password.choose()?;
        let pair = {
            let _progress = ui.progress("making a key pair");
            keys::generate(self.kind, &password)?
        };
        files.write(ui, &pair)
    }
}
