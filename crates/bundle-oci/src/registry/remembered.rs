//! A bound for what is remembered of registries and repositories.

use std::collections::HashMap;

/// What is remembered of registries and repositories at most. Whoever names references names as many hosts as they like; to ask again costs a request.
pub(super) const REMEMBERED: usize = 1000;

/// Forgets everything where one more would be too much.
pub(super) fn make_room<K, V>(known: &mut HashMap<K, V>) {
    if known.len() >= REMEMBERED {
        known.clear();
    }
}
