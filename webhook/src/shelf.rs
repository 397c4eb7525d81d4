//! A shelf: the objects of one small kind, kept in memory by a watch and looked up by name.
//! Not here: what the objects mean; a reader turns each into a value once, when it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;

/// What is on it. Readers never wait.
pub struct Shelf<T> {
    items: ArcSwap<BTreeMap<String, Arc<T>>>,
    generation: watch::Sender<u64>,
    synced: AtomicBool,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self {
            items: ArcSwap::default(),
            generation: watch::Sender::new(0),
            synced: AtomicBool::new(false),
        }
    }
}

impl<T> Shelf<T> {
    /// The one of that name.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.items.load().get(name).cloned()
    }

    /// All of them by name, as they are now.
    pub fn all(&self) -> Arc<BTreeMap<String, Arc<T>>> {
        self.items.load_full()
    }

    /// Grows with every change: what was concluded from another generation has to be concluded again.
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Told of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Whether everything that the server had has been read once. Before that, "not there" cannot be told.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Puts `items` in the place of all that was there.
    pub fn replace(&self, items: BTreeMap<String, Arc<T>>) {
        self.items.store(Arc::new(items));
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Says that what is on it now is all there is.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_and_moves_the_generation() {
        let shelf: Shelf<u8> = Shelf::default();
        assert!(!shelf.is_synced());
        let before = shelf.generation();
        shelf.replace(BTreeMap::from([("a".to_owned(), Arc::new(1))]));
        shelf.set_synced();
        assert!(shelf.is_synced());
        assert_eq!(shelf.get("a").as_deref(), Some(&1));
        assert_eq!(shelf.get("b"), None);
        assert!(shelf.generation() > before);
    }
}
