//! The hash of every byte that passes, taken once.
//! Not here: digests as names (bundle_core::reference).

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use bundle_core::reference::Digest;

/// A sha256 that grows. aws-lc-rs and `sha2` were measured alike where the processor has instructions for it; aws-lc-rs is in the tree for TLS and
/// brings code of its own for processors that have none.
#[derive(Clone)]
pub struct Hasher(Context);

impl Hasher {
    /// The hash of nothing yet.
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything that was added.
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
    fn both_implementations_agree() {
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
