//! What `--key` names: a file, or a key that a plugin holds.

use std::fmt;
use std::path::PathBuf;

use bundle_trust::keys::PublicKey;
use bundle_trust::sign::Signer as _;

use super::Key;
use crate::failure::{Failure, Outcome};
use crate::{failure, files};

/// Where a key is.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In this file.
    File(PathBuf),
    /// Behind a plugin.
    Plugin(Key),
}

impl Place {
    /// Reads what was given. `attended`: somebody is there whom a plugin may ask for a PIN or a touch.
    pub(crate) fn read(given: PathBuf, attended: bool) -> Outcome<Self> {
        let key = given
            .to_str()
            .map(|text| Key::parse(text, attended))
            .transpose()?;
        Ok(key.flatten().map_or(Self::File(given), Self::Plugin))
    }

    /// The public key that is there.
    pub(crate) fn public(&self) -> Outcome<PublicKey> {
        match self {
            Self::File(path) => PublicKey::parse(&files::read_text(path)?)
                .map_err(|finding| Failure::from(failure::in_file(finding, path))),
            Self::Plugin(key) => Ok(key.clone().open()?.public().clone()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Plugin(key) => key.fmt(f),
        }
    }
}
