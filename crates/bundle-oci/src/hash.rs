//! Incremental SHA-256.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use bundle_core::reference::Digest;

/// An incremental SHA-256.
///
/// The implementation is aws-lc-rs. On processors with SHA instructions it is as fast as `sha2`,
/// and on other processors it is faster. TLS already depends on aws-lc-rs.
#[derive(Clone)]
pub struct Hasher(Context);

impl Hasher {
    /// Starts a hash.
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes that were added.
    pub fn finish(self) -> Digest {
        Digest::from_hash(self.0.finish().as_ref())
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_equals_that_of_sha2() {
        let mut hasher = Hasher::new();
        let mut all = Vec::new();
        for length in [0_usize, 1, 63, 64, 65, 1000, 70_000] {
            let piece = vec![u8::try_from(length % 251).unwrap(); length];
            hasher.update(&piece);
            all.extend(piece);
        }
        assert_eq!(hasher.clone().finish(), Digest::of(&all));
    }
}
