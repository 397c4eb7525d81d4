//! Index of the objects that inventories record. A watch event then finds the BundleDeployments of
//! its object without a search in all inventories.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use bundle_core::plan::inventory::Inventory;

/// The names of the BundleDeployments that record an object, by the hash of the object key. Two
/// objects can have the same hash, so a caller must check the inventories of these BundleDeployments.
#[derive(Default)]
pub(super) struct RecordedObjects {
    hasher: RandomState,
    names: HashMap<u64, Names>,
}

/// The names of BundleDeployments. Nearly all objects are recorded by one BundleDeployment.
enum Names {
    One(Arc<str>),
    Several(Vec<Arc<str>>),
}

impl Names {
    fn as_slice(&self) -> &[Arc<str>] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

impl RecordedObjects {
    /// Returns the names of the BundleDeployments that may record the object `key`.
    pub(super) fn names(&self, key: &str) -> &[Arc<str>] {
        let names = self.names.get(&self.hasher.hash_one(key));
        names.map(Names::as_slice).unwrap_or_default()
    }

    /// Replaces the inventory of `deployment`.
    pub(super) fn replace(&mut self, deployment: &str, old: &Inventory, new: &Inventory) {
        let name = Arc::<str>::from(deployment);
        // Both inventories are sorted by object key.
        let mut old = old.objects().map(|(key, _)| key).peekable();
        let mut new = new.objects().map(|(key, _)| key).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(former), Some(key)) => former.cmp(key),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return,
            };
            let former = old.next_if(|_| order.is_le());
            let key = new.next_if(|_| order.is_ge());
            match (former, key) {
                (Some(former), None) => self.remove(deployment, former),
                (None, Some(key)) => self.add(&name, key),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
    }

    fn add(&mut self, name: &Arc<str>, key: &str) {
        let hash = self.hasher.hash_one(key);
        let mut names = self.names(key).to_vec();
        // Each object of a BundleDeployment with this hash is counted, so that the removal of one
        // of them keeps the name for the others.
        names.push(Arc::clone(name));
        self.names.insert(hash, of(names));
    }

    fn remove(&mut self, name: &str, key: &str) {
        let hash = self.hasher.hash_one(key);
        let mut names = self.names(key).to_vec();
        if let Some(index) = names.iter().position(|found| **found == *name) {
            names.remove(index);
        }
        if names.is_empty() {
            self.names.remove(&hash);
        } else {
            self.names.insert(hash, of(names));
        }
    }
}

fn of(mut names: Vec<Arc<str>>) -> Names {
    match names.pop() {
        Some(name) if names.is_empty() => Names::One(name),
        Some(name) => {
            names.push(name);
            Names::Several(names)
        }
        None => Names::Several(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(keys: &[&str]) -> Inventory {
        let mut inventory = Inventory::new("web");
        for key in keys {
            inventory.record(*key, "1");
        }
        inventory
    }

    #[test]
    fn names_are_those_of_the_current_inventories() {
        let mut index = RecordedObjects::default();
        let names = |index: &RecordedObjects, key: &str| {
            let names = index.names(key).iter();
            names.map(ToString::to_string).collect::<Vec<_>>()
        };
        let (none, one, two) = (inventory(&[]), inventory(&["a"]), inventory(&["a", "b"]));
        index.replace("web", &none, &two);
        index.replace("api", &none, &one);
        index.replace("web", &two, &two);
        assert_eq!(names(&index, "a"), ["web", "api"]);
        assert_eq!(names(&index, "b"), ["web"]);
        index.replace("web", &two, &one);
        assert_eq!(names(&index, "a"), ["web", "api"]);
        assert!(names(&index, "b").is_empty());
        index.replace("web", &one, &none);
        assert_eq!(names(&index, "a"), ["api"]);
        index.replace("api", &one, &none);
        assert!(index.names.is_empty());
    }
}
