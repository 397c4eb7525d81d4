//! Value of `--key`: a file, or a key of a plugin.

use std::fmt;
use std::path::PathBuf;

use bundle_trust::keys::PublicKey;
use bundle_trust::sign::Signer as _;

use super::KmsKey;
use crate::failure::{self, Failure, Outcome};
use crate::system::files;

/// Location of a key.
#[derive(Debug, Clone)]
pub(crate) enum KeyLocation {
    /// A key in a file.
    File(PathBuf),
    /// A key of a KMS plugin.
    Plugin(KmsKey),
}

impl KeyLocation {
    /// Parses the value of a flag. `attended` is `true` if a user can enter a PIN or touch a token.
    pub(crate) fn read(given: PathBuf, attended: bool) -> Outcome<Self> {
        let key = given
            .to_str()
            .map(|text| KmsKey::parse(text, attended))
            .transpose()?;
        Ok(key.flatten().map_or(Self::File(given), Self::Plugin))
    }

    /// Returns the public key.
    pub(crate) fn public(&self) -> Outcome<PublicKey> {
        match self {
            Self::File(path) => PublicKey::parse(&files::read_text(path)?)
                .map_err(|finding| Failure::from(failure::in_file(finding, path))),
            Self::Plugin(key) => Ok(key.clone().open()?.public().clone()),
        }
    }
}

impl fmt::Display for KeyLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Plugin(key) => key.fmt(f),
        }
    }
}
