//! `keys import`: a private key of another program becomes a pair as cosign keeps it.

use std::path::PathBuf;

use bundle_trust::keys;
use zeroize::Zeroizing;

use super::pair;
use crate::failure::{self, Failure, Outcome};
use crate::files;
use crate::password::Source;
use crate::ui::Ui;

/// What `keys import` needs to know.
pub(crate) struct Import {
    /// The private key that there is.
    pub(crate) key: PathBuf,
    /// Path of the new files, without their endings.
    pub(crate) prefix: PathBuf,
    /// Where the new password comes from.
    pub(crate) password: Source,
}

impl Import {
    /// Reads the key, and writes both files.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let files = pair::Files::new(&self.prefix)?;
        let text = Zeroizing::new(files::read_text(&self.key)?);
        let password = self.password.choose()?;
        let pair = {
            let _progress = ui.progress("encrypting the key");
            keys::import(&text, &password)
                .map_err(|finding| Failure::from(failure::in_file(finding, &self.key)))?
        };
        files.write(ui, &pair)
    }
}
