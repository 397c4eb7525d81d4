//! Deleted Bundles whose cached copies were released. To release a copy means to remove it from the
//! cache unless another Bundle needs it. A finalizer of another user can keep a deleted Bundle for
//! a long time. Without this record, each event of the Bundle would list all Bundles again.

use std::time::Duration;

use moka::future::Cache;

/// Time after which a deleted Bundle is handled again.
const TTL: Duration = Duration::from_secs(600);
/// Maximum number of recorded Bundles. They need about 1 MiB of memory.
const MAX_BUNDLES: u64 = 10_000;

/// The uids of the deleted Bundles whose copies were released in the last ten minutes.
#[derive(Debug)]
pub(in crate::reconcile) struct ReleasedCopies(Cache<String, ()>);

impl Default for ReleasedCopies {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(MAX_BUNDLES);
        Self(cache.time_to_live(TTL).build())
    }
}

impl ReleasedCopies {
    /// Returns true if the copies of the Bundle with this uid were released.
    pub(in crate::reconcile) fn contains(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    /// Records the Bundle with this uid.
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
