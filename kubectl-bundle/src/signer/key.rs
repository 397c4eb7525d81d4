//! A private key in a file, opened with its password.
//! Not here: what it signs.

use std::path::Path;

use bundle_trust::keys::{self, PrivateKey};

use crate::failure::{Failure, Outcome};
use crate::password::Source;
use crate::{failure, files};

/// Reads the file, gets the password, and opens the key.
pub(super) fn open(file: &Path, password: &Source) -> Outcome<PrivateKey> {
    let pem = files::read_text(file)?;
    let password = password.get(&format!("Password for {}", file.display()))?;
    keys::load_private(&pem, &password)
        .map_err(|finding| Failure::from(failure::in_file(finding, file)))
}
