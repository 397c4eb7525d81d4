//! The names of files with uploads. A name contains Bundle, requester and digest, and a MAC over
//! these values. Because of the MAC, a file that another program wrote to the volume does not count
//! as an upload.

use std::path::Path;

use bundle_core::reference::Digest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// File extension of a complete upload.
const COMPLETE: &str = "upload";
/// First part of the data in the MAC. It distinguishes this MAC from other MACs with the same key.
const PURPOSE: &str = "core.rukpak.io/upload";

/// The values in the name of a complete upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadName {
    /// Uid of the Bundle that the upload is for.
    pub(super) uid: String,
    /// Hash of the user name of the requester.
    pub(super) requester: String,
    pub(super) digest: Digest,
}

impl UploadName {
    /// Returns the name of the file. Returns `None` if the uid has an invalid form.
    pub(super) fn file(&self, key: &[u8]) -> Option<String> {
        let mac = hex::encode(self.mac(key).finalize().into_bytes());
        is_uid(&self.uid).then(|| format!("{}_{mac}.{COMPLETE}", self.text()))
    }

    /// Parses the name of a file. Returns `None` if the name was not created with `key`.
    pub(super) fn parse(path: &Path, key: &[u8]) -> Option<Self> {
        if path.extension()? != COMPLETE {
            return None;
        }
        let mut parts = path.file_stem()?.to_str()?.split('_');
        let (uid, requester) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let digest = format!("sha256:{}", parts.next()?).parse().ok()?;
        let mac = hex::decode(parts.next()?).ok()?;
        let name = Self {
            uid,
            requester,
            digest,
        };
        let is_complete = parts.next().is_none() && is_uid(&name.uid);
        // The MACs are compared in constant time.
        (is_complete && name.mac(key).verify_slice(&mac).is_ok()).then_some(name)
    }

    /// Returns the values as text, separated by underscores. No value contains an underscore.
    fn text(&self) -> String {
        format!("{}_{}_{}", self.uid, self.requester, self.digest.hex())
    }

    fn mac(&self, key: &[u8]) -> Hmac<Sha256> {
        // The fallback is never used, because HMAC accepts keys of any length.
        let mac = Hmac::<Sha256>::new_from_slice(key)
            .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
        let mac = mac.chain_update(PURPOSE).chain_update([0]);
        mac.chain_update(self.text())
    }
}

fn is_uid(uid: &str) -> bool {
    !uid.is_empty()
        && uid.len() <= 64
        && (uid.bytes()).all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
