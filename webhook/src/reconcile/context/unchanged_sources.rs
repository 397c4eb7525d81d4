//! Sources that referred to the recorded content at their last comparison. Each event of a Bundle
//! starts a reconcile, for example each status write of the pod. Without this cache, each of these
//! reconciles would read the source again.

use std::time::Duration;

use bundle_core::json;
use bundle_core::reference::Digest;
use bundle_core::review::Requester;
use moka::future::Cache;
use moka::policy::EvictionPolicy;

use crate::budget::CACHE_ENTRY;

/// Maximum number of cached results. If a result is evicted, the next reconcile of its Bundle reads
/// the source.
const MAX_SOURCES: usize = 512;
/// Maximum memory of the cached results, in bytes.
pub(in crate::reconcile) const MAX_BYTES: usize =
    MAX_SOURCES * (CACHE_ENTRY + size_of::<SourceKey>());
/// Interval from which the expiry is computed if the settings disable periodic comparisons.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(300);

/// Hash of the uid of a Bundle, its spec, its requester and its recorded content. After a change of
/// one of these values, the source is compared again, with a check of the permissions of the
/// requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::reconcile) struct SourceKey([u8; 32]);

impl SourceKey {
    /// Returns the key. `version` contains the uid and the digest of the spec of the Bundle.
    pub(in crate::reconcile) fn of(version: &str, requester: &Requester, content: &Digest) -> Self {
        Self(json::sha256(&(version, requester, content.as_str())))
    }
}

/// The Bundles whose source was unchanged at the last comparison. A result expires after half of
/// the interval of periodic comparisons, so that each periodic comparison reads the source. Changed
/// sources and failed comparisons are not cached.
#[derive(Debug)]
pub(in crate::reconcile) struct UnchangedSources(Cache<SourceKey, ()>);

impl UnchangedSources {
    /// Creates an empty cache. `interval` is the interval of periodic comparisons.
    pub(in crate::reconcile) fn new(interval: Option<Duration>) -> Self {
        let interval = interval.unwrap_or(DEFAULT_INTERVAL);
        let cache = Cache::builder()
            .max_capacity(MAX_SOURCES as u64)
            // LRU keeps the newest results, because the status write after a comparison soon starts
            // the next reconcile.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_live(interval / 2);
        Self(cache.build())
    }

    /// Returns true if the source was unchanged at a recent comparison.
    pub(in crate::reconcile) fn contains(&self, key: SourceKey) -> bool {
        self.0.contains_key(&key)
    }

    /// Records that the source is unchanged.
    pub(in crate::reconcile) async fn insert(&self, key: SourceKey) {
        self.0.insert(key, ()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(user: &str, groups: &[&str]) -> Requester {
        Requester {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..Requester::default()
        }
    }

    #[tokio::test]
    async fn result_is_scoped_to_bundle_spec_requester_and_content() {
        let sources = UnchangedSources::new(Some(Duration::from_secs(300)));
        let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
        let ana = requester("ana", &["dev"]);
        sources.insert(SourceKey::of("u1 a", &ana, &one)).await;
        assert!(sources.contains(SourceKey::of("u1 a", &ana, &one)));
        for other in [
            SourceKey::of("u2 a", &ana, &one),
            SourceKey::of("u1 b", &ana, &one),
            SourceKey::of("u1 a", &requester("ben", &["dev"]), &one),
            SourceKey::of("u1 a", &requester("ana", &[]), &one),
            SourceKey::of("u1 a", &ana, &two),
        ] {
            assert!(!sources.contains(other));
        }
    }

    #[test]
    fn result_expires_before_the_next_periodic_comparison() {
        let interval = Duration::from_secs(60);
        for (setting, expected) in [(Some(interval), interval), (None, DEFAULT_INTERVAL)] {
            let expiry = UnchangedSources::new(setting).0.policy().time_to_live();
            assert_eq!(expiry, Some(expected / 2));
        }
    }
}
