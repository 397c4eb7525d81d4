//! The number and size of the cached copies, so that a new copy is stored without a list of the
//! cache folder.

use std::collections::BTreeMap;

use super::{CachedCopy, CopyKind, counted_bytes};
use crate::telemetry::metrics::CacheMetrics;

/// The number and size of all copies, by kind. Only this process adds copies. If another program
/// removes a copy, the values are too high until the folder is listed again.
#[derive(Debug, Default)]
pub(super) struct CacheUsage(BTreeMap<CopyKind, KindUsage>);

/// The number and size of the copies of one kind.
#[derive(Debug, Default, Clone, Copy)]
struct KindUsage {
    copies: u64,
    bytes: u64,
    /// Number of bytes that the copies count towards the limits.
    counted: u64,
}

impl CacheUsage {
    /// Returns the number and size of `copies`.
    pub(super) fn of(copies: &[CachedCopy]) -> Self {
        let mut usage = Self::default();
        for copy in copies {
            usage.add(copy.kind, copy.bytes);
        }
        usage
    }

    /// Adds a copy with this number of bytes.
    pub(super) fn add(&mut self, kind: CopyKind, bytes: u64) {
        let usage = self.0.entry(kind).or_default();
        usage.copies += 1;
        usage.bytes += bytes;
        usage.counted += counted_bytes(bytes);
    }

    /// Removes a copy with this number of bytes.
    pub(super) fn remove(&mut self, kind: CopyKind, bytes: u64) {
        let usage = self.0.entry(kind).or_default();
        usage.copies = usage.copies.saturating_sub(1);
        usage.bytes = usage.bytes.saturating_sub(bytes);
        usage.counted = usage.counted.saturating_sub(counted_bytes(bytes));
    }

    /// Returns the number of bytes that all copies count towards the limits.
    pub(super) fn counted_bytes(&self) -> u64 {
        self.0.values().map(|usage| usage.counted).sum()
    }

    /// Sets the metrics to the number and size of the copies.
    pub(super) fn report(&self, metrics: &CacheMetrics) {
        for kind in [CopyKind::Archive, CopyKind::Rendered, CopyKind::Content] {
            let usage = self.0.get(&kind).copied().unwrap_or_default();
            metrics.holds(kind.label(), usage.copies, usage.bytes);
        }
    }
}
