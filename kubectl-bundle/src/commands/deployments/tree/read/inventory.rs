//! The recorded objects of a BundleDeployment.

use bundle_core::plan::inventory::{Inventory, ObjectRecord};

/// Records of an inventory.
#[derive(Debug, Default)]
pub(super) struct RecordedObjects {
    /// Key and uid of each object. The uid is `None` while bundle-webhook creates or adopts the
    /// object.
    pub(super) objects: Vec<(String, Option<String>)>,
}

impl RecordedObjects {
    /// Returns the records of `inventory`.
    pub(super) fn of(inventory: &Inventory) -> Self {
        let objects = inventory.objects().map(|(key, record)| {
            let uid = match record {
                ObjectRecord::Uid(uid) => Some(uid.clone()),
                ObjectRecord::Intent(_) | ObjectRecord::Adoption(_) => None,
            };
            (key.to_owned(), uid)
        });
        Self {
            objects: objects.collect(),
        }
    }

    /// Returns the recorded uids.
    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        let uids = self.objects.iter().map(|(_, uid)| uid.as_deref());
        uids.flatten()
    }
}
