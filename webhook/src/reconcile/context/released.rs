//! Deleted Bundles whose cached copies were released. To release a copy means to remove it from the
//! cache unless another Bundle needs it. A finalizer that another user added can delay the deletion
//! of a Bundle for a long time. During this time, without this record, each event of the Bundle
//! would list all Bundles again.

use std::time::Duration;

use moka::future::Cache;

use crate::budget::CACHE_ENTRY;

/// Time after which the cached copy of a deleted Bundle is released again.
const TTL: Duration = Duration::from_secs(600);
/// Maximum number of recorded Bundles.
const MAX_BUNDLES: usize = 2048;
/// Memory that the uid of a Bundle needs, in bytes.
const UID_BYTES: usize = 64;
/// Maximum memory that the recorded Bundles need, in bytes.
pub(in crate::reconcile) const MAX_BYTES: usize = MAX_BUNDLES * (CACHE_ENTRY + UID_BYTES);

/// The uids of the deleted Bundles whose copies were released in the last ten minutes.
#[derive(Debug)]
pub(in crate::reconcile) struct ReleasedCopies(Cache<String, ()>);

impl Default for ReleasedCopies {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(MAX_BUNDLES as u64);
        Self(cache.time_to_live(TTL).build())
    }
}

impl ReleasedCopies {
    /// Returns true if the cached copies of the Bundle with this uid were released in the last ten
    /// minutes.
    pub(in crate::reconcile) fn contains(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    /// Records that the cached copy of the Bundle with this uid was released.
    pub(in crate::reconcile) async fn record(&self, uid: &str) {
        self.0.insert(uid.to_owned(), ()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_recorded_bundle_is_released() {
        let released = ReleasedCopies::default();
        released.record("u-1").await;
        assert!(released.contains("u-1"));
        assert!(!released.contains("u-2"));
    }
}
