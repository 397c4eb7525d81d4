//! Metrics of the content cache.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The result of a lookup in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLookup {
    /// The cache has a valid copy.
    Hit,
    /// The cache has no copy.
    Miss,
    /// The copy is damaged, or its seal is invalid.
    Damaged,
}

impl CacheLookup {
    fn label(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Damaged => "damaged",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookupLabels {
    copy: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CopyLabel {
    copy: &'static str,
}

/// Metrics of the content cache. The label `copy` is the kind of the cached copy: `content`,
/// `rendered` or `archive`. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct CacheMetrics {
    lookups: Family<LookupLabels, Counter>,
    evictions: Family<CopyLabel, Counter>,
    copies: Family<CopyLabel, Gauge>,
    size: Family<CopyLabel, Gauge>,
    limit: Gauge,
}

impl CacheMetrics {
    /// Creates the metrics, and adds them to `registry`.
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "bundle_cache_lookups",
            "Lookups in the content cache by kind of copy and outcome",
            metrics.lookups.clone(),
        );
        registry.register(
            "bundle_cache_evictions",
            "Copies removed from the content cache to free space",
            metrics.evictions.clone(),
        );
        registry.register(
            "bundle_cache_copies",
            "Copies in the content cache",
            metrics.copies.clone(),
        );
        registry.register_with_unit(
            "bundle_cache_size",
            "Size of the copies in the content cache",
            Unit::Bytes,
            metrics.size.clone(),
        );
        registry.register_with_unit(
            "bundle_cache_limit",
            "Maximum size of the content cache",
            Unit::Bytes,
            metrics.limit.clone(),
        );
        metrics
    }

    /// Counts a lookup of a copy of the kind `copy`.
    pub fn looked_up(&self, copy: &'static str, result: CacheLookup) {
        let outcome = result.label();
        let labels = LookupLabels { copy, outcome };
        self.lookups.get_or_create(&labels).inc();
    }

    /// Counts a copy that was removed to free space.
    pub fn evicted(&self, copy: &'static str) {
        self.evictions.get_or_create(&CopyLabel { copy }).inc();
    }

    /// Sets the number of copies of the kind `copy`, and their total size in bytes.
    pub fn holds(&self, copy: &'static str, copies: u64, bytes: u64) {
        let label = CopyLabel { copy };
        self.copies.get_or_create(&label).set(gauge(copies));
        self.size.get_or_create(&label).set(gauge(bytes));
    }

    /// Sets the metric of the maximum cache size, in bytes.
    pub fn limit(&self, bytes: u64) {
        self.limit.set(gauge(bytes));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
