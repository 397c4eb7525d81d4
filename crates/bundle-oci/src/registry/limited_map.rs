//! Map for caches of registries. The number and size of its entries are limited, because references
//! can name any number of hosts, and registries choose the texts that are cached.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Maximum number of entries. If an entry is evicted, one more request is necessary.
const MAX_ENTRIES: usize = 1000;
/// Maximum size of all entries, in bytes. Ordinary tokens have 1 to 3 KiB.
const MAX_BYTES: usize = 128 << 10;
/// Maximum size of one entry, in bytes.
const MAX_ENTRY_BYTES: usize = MAX_BYTES / 8;
/// Number of maps of one client: logins, tokens and challenges.
const MAPS_OF_CLIENT: usize = 3;
/// Number of maps that all clients share: failed mirrors, registries, and connections with separate
/// certificates.
const SHARED_MAPS: usize = 3;

/// Returns the maximum memory of all caches, in bytes, for `clients` clients that share their
/// connections.
pub const fn caches_bytes(clients: usize) -> usize {
    (clients * MAPS_OF_CLIENT + SHARED_MAPS) * MAX_BYTES
}

/// Map with a limited size. It is cleared when it is full, and it does not store large entries.
#[derive(Debug)]
pub(super) struct LimitedMap<K, V> {
    entries: HashMap<K, (V, usize)>,
    bytes: usize,
}

impl<K, V> Default for LimitedMap<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<K: Eq + Hash, V> LimitedMap<K, V> {
    pub(super) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Replaces the entry of `key`. `bytes` is the size of key and value. An entry that is larger
    /// than [`MAX_ENTRY_BYTES`] is not stored.
    pub(super) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        if bytes > MAX_ENTRY_BYTES {
            return;
        }
        if self.entries.len() >= MAX_ENTRIES || self.bytes + bytes > MAX_BYTES {
            self.entries.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.entries.insert(key, (value, bytes));
    }

    pub(super) fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some((_, bytes)) = self.entries.remove(key) {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_size_of_entries_are_limited() {
        let mut map = LimitedMap::default();
        for key in 0..10 * MAX_ENTRIES {
            map.insert(key, (), 1);
            assert!(map.entries.len() <= MAX_ENTRIES);
        }
        for key in 0..1000 {
            map.insert(key, (), MAX_ENTRY_BYTES);
            assert!(map.entries.values().map(|((), bytes)| bytes).sum::<usize>() <= MAX_BYTES);
        }
        assert_eq!(map.get(&999), Some(&()));
    }

    #[test]
    fn large_entry_is_not_kept_and_removes_the_earlier_one() {
        let mut map = LimitedMap::default();
        map.insert("a", 1, 10);
        map.insert("b", 2, 20);
        map.insert("a", 3, MAX_ENTRY_BYTES + 1);
        assert_eq!(
            (map.get("a"), map.get("b"), map.bytes),
            (None, Some(&2), 20)
        );
        map.remove("b");
        assert_eq!((map.get("b"), map.bytes), (None, 0));
    }
}
