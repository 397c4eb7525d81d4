//! Creation mark: an annotation that distinguishes objects that this project created from objects
//! of the same name that another client created.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Length of a creation mark, in bytes.
const LENGTH: usize = 16;

/// Secret key of one inventory. The creation marks of its objects are computed with this key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CreationKey(String);

impl fmt::Debug for CreationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CreationKey(…)")
    }
}

impl CreationKey {
    /// Returns a key from random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        Self(hex::encode(random))
    }

    /// Returns the mark of the object `key`. The mark is secret until the object exists. Afterwards
    /// users can read the mark in the object.
    pub fn mark(&self, key: &str) -> CreationMark {
        // HMAC accepts keys of any length, so the fallback is never used.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes())
            .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
        mac.update(b"creation 1\0");
        mac.update(key.as_bytes());
        let all = mac.finalize().into_bytes();
        let mut mark = [0; LENGTH];
        mark.copy_from_slice(&all[..LENGTH]);
        CreationMark(mark)
    }
}

/// Creation mark of an object: 32 hexadecimal digits in an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreationMark([u8; LENGTH]);

impl CreationMark {
    /// Parses the value of the annotation; `None` if the value is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut mark = [0; LENGTH];
        hex::decode_to_slice(text, &mut mark).ok()?;
        Some(Self(mark))
    }
}

impl fmt::Display for CreationMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_specific_to_object_and_inventory_and_round_trips() {
        let (one, two) = (CreationKey::new([1; 32]), CreationKey::new([2; 32]));
        let mark = one.mark("ConfigMap/a/b");
        assert_eq!(mark, one.mark("ConfigMap/a/b"));
        assert_ne!(mark, one.mark("ConfigMap/a/c"));
        assert_ne!(mark, two.mark("ConfigMap/a/b"));
        assert_eq!(CreationMark::parse(&mark.to_string()), Some(mark));
        assert!(!format!("{one:?}").contains("01"));
        for text in [
            "",
            "+1",
            "zz",
            "é",
            &"g".repeat(32),
            &"+1".repeat(16),
            &"0".repeat(33),
        ] {
            assert_eq!(CreationMark::parse(text), None, "{text}");
        }
    }
}
