//! IDs of public keys.

use std::fmt;

use serde::Serialize;

/// ID of a public key: Base64 of the sha256 of its DER encoding. Sigstore bundles contain this ID
/// as the key hint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    /// Creates the ID from the text of a key hint. Keys with equal IDs are the same key.
    pub fn new(hint: impl Into<String>) -> Self {
        Self(hint.into())
    }

    /// Returns the text of the ID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
