//! Private key in a file, opened with its password.

use std::path::Path;

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::keys::{self, PrivateKey};

use crate::failure::{self, Failure, Outcome};
use crate::system::files;
use crate::ui::password::PasswordSource;

/// Reads the file, gets the password, and opens the key.
pub(super) fn open(file: &Path, password: &PasswordSource) -> Outcome<PrivateKey> {
    let pem = files::read_text(file)?;
    // A public key is rejected before the password is requested.
    if keys::PublicKey::parse(&pem).is_ok() {
        return Err(Finding::error(
            codes::trust::KEY_UNREADABLE,
            "it is a public key, which cannot sign",
        )
        .in_file(file.display().to_string())
        .hint("pass the private key of the pair, such as cosign.key; the public key is for `kubectl bundle verify REF --key FILE`")
        .into());
    }
    let password = password.get(&format!("Password for {}", file.display()))?;
    keys::load_private(&pem, &password)
        .map_err(|finding| Failure::from(failure::in_file(finding, file)))
}
