//! The key of stamps, seals and copies on disk. Only the pod has it.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// The key of admission stamps. It is never printed, and wiped when dropped.
pub struct StampKey(zeroize::Zeroizing<Vec<u8>>);

impl StampKey {
    /// Creates a key from its bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(zeroize::Zeroizing::new(bytes))
    }

    /// Returns the key for an HMAC.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The current key. Clones share it, so that all of them see its replacement.
#[derive(Clone)]
pub(crate) struct CurrentStampKey(Arc<ArcSwap<StampKey>>);

impl CurrentStampKey {
    pub(crate) fn new(key: StampKey) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(key)))
    }

    pub(crate) fn get(&self) -> Arc<StampKey> {
        self.0.load_full()
    }

    pub(crate) fn set(&self, key: StampKey) {
        self.0.store(Arc::new(key));
    }
}
