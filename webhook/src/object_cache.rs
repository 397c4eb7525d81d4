//! A cache of all objects of one kind, filled by a watch and indexed by name. The kind must have
//! few objects. Each object is parsed once when it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;

/// The cached objects. Readers never block.
pub struct ObjectCache<T> {
    items: ArcSwap<BTreeMap<String, Arc<T>>>,
    generation: watch::Sender<u64>,
    synced: AtomicBool,
}

impl<T> Default for ObjectCache<T> {
    fn default() -> Self {
        Self {
            items: ArcSwap::default(),
            generation: watch::Sender::new(0),
            synced: AtomicBool::new(false),
        }
    }
}

impl<T> ObjectCache<T> {
    /// Returns the object with this name.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.items.load().get(name).cloned()
    }

    /// Returns all objects by name.
    pub fn all(&self) -> Arc<BTreeMap<String, Arc<T>>> {
        self.items.load_full()
    }

    /// Returns a number that grows with every change.
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Returns a receiver of the generation, which is notified of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Returns true if all objects were loaded at least once. Before the first load, objects of the
    /// cluster can be missing in the cache.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Replaces all objects.
    pub fn replace(&self, items: BTreeMap<String, Arc<T>>) {
        self.items.store(Arc::new(items));
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Records that all objects are loaded.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_visible_and_increments_the_generation() {
        let cache: ObjectCache<u8> = ObjectCache::default();
        assert!(!cache.is_synced());
        let before = cache.generation();
        cache.replace(BTreeMap::from([("a".to_owned(), Arc::new(1))]));
        cache.set_synced();
        assert!(cache.is_synced());
        assert_eq!(cache.get("a").as_deref(), Some(&1));
        assert_eq!(cache.get("b"), None);
        assert!(cache.generation() > before);
    }
}
