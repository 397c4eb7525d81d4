//! Limit of the caches for registries and repositories.

use std::collections::HashMap;

/// Maximum number of registries and repositories in a cache. References can name any number of
/// hosts; an evicted entry costs one more request.
pub(super) const MAX_CACHED: usize = 1000;

/// Clears the cache if it is full.
pub(super) fn clear_if_full<K, V>(known: &mut HashMap<K, V>) {
    if known.len() >= MAX_CACHED {
        known.clear();
    }
}
