//! Digests of archives that were downloaded recently. Each event of a Bundle starts a comparison
//! with the archive at its URL. Without this cache, each comparison would download the whole
//! archive.

use std::time::Duration;

use bundle_core::reference::Digest;
use moka::future::Cache;

use crate::budget::CACHE_ENTRY;

/// Maximum number of URLs with a cached digest.
const MAX_URLS: usize = 1024;
/// Memory of the key and the value of an entry, in bytes: two digests as text.
const DIGESTS_BYTES: usize = 192;
/// Maximum memory of the cache, in bytes.
pub(crate) const MAX_BYTES: usize = MAX_URLS * (CACHE_ENTRY + DIGESTS_BYTES);
/// Interval from which the expiry is computed if the settings disable periodic comparisons.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(300);

/// The digest of the archive at each URL. An entry expires after half of the interval of periodic
/// comparisons, so that each periodic comparison reads the URL.
#[derive(Debug, Clone)]
pub(crate) struct RecentDigests(Cache<Digest, Digest>);

impl RecentDigests {
    pub(crate) fn new(interval: Option<Duration>) -> Self {
        let interval = interval.unwrap_or(DEFAULT_INTERVAL);
        let cache = Cache::builder().max_capacity(MAX_URLS as u64);
        Self(cache.time_to_live(interval / 2).build())
    }

    /// Returns the digest for `key` if it is cached.
    pub(crate) async fn get(&self, key: &Digest) -> Option<Digest> {
        self.0.get(key).await
    }

    pub(crate) async fn insert(&self, key: Digest, digest: Digest) {
        self.0.insert(key, digest).await;
    }
}
