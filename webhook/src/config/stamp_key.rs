//! The key for the MACs of stamps, seals and files in the cache volume. Only the pod has this key.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// The stamp key. `Debug` never prints this key. Its memory is overwritten on drop.
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

/// The current stamp key. All clones share this key, so a new key replaces it in all clones.
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
