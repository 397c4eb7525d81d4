//! The inventory of a BundleDeployment: which objects on a cluster are its own, by uid, and in which namespaces they live.
//! Labels and annotations of objects never decide that: whoever may write an object can write them.
//! Not here: where the inventory is stored, or asking the cluster what exists.

mod record;

use std::collections::{BTreeMap, BTreeSet, HashSet};

pub use record::{InstallationRecord, InstalledContent, RememberedSeals};
use serde::{Deserialize, Serialize};

pub use super::applyset::parts;

use super::jobs::JobRuns;

mod creation;

pub use creation::{CreationKey, CreationMark};

/// The most objects of one inventory, those that are still to be pruned included.
pub const MAX_OBJECTS: usize = 25_000;
/// The most namespaces of one inventory.
pub const MAX_NAMESPACES: usize = 10_000;
/// The longest encoding, in bytes before compression.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// The format of the encoding.
const VERSION: u32 = 1;
/// How many seconds before the intent an object may have been created, by the clock of the API server: clocks differ.
const CLOCK_TOLERANCE: i64 = 2;

/// What is recorded of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Record {
    /// The object with this uid is ours, and no other of the same name.
    Uid(String),
    /// It did not exist at this time (seconds since 1970), and we were about to create it. A crash may have come between: what exists since is ours if it
    /// carries our mark.
    Intent(i64),
    /// The object with this uid is somebody else's, and we were about to take it over. A crash may have come between: it is ours once it carries our mark.
    Adoption(String),
}

/// An object that is about to be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    key: String,
    uid: String,
    before: Option<Record>,
}

impl Adoption {
    /// The key of the object.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The uid of the object.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// What belongs to one BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inventory {
    version: u32,
    /// Name of the BundleDeployment, for people; its uid is in the name of the ConfigMap.
    pub deployment: String,
    /// Content, identity and settings that the namespaces were recorded for; empty before the first installation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub installation: String,
    /// True once the deletion of the BundleDeployment was reviewed, or admitted afterwards. It is never reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deletion_accepted: bool,
    /// What was installed; `None` before the first installation, and in inventories that an earlier version wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<InstallationRecord>,
    /// By [`crate::object::ObjectId`] in text.
    #[serde(default)]
    objects: BTreeMap<String, Record>,
    /// The uid of each namespace that objects live in, by name.
    #[serde(default)]
    namespaces: BTreeMap<String, String>,
    /// The Namespaces among the objects that were created as `spec.targetNamespace`, by key: the content does not have them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    created_namespaces: BTreeSet<String>,
    /// What the marks of objects are made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    creation_key: Option<CreationKey>,
    /// The content that each Job was last applied from, and whether that Job has run and expired.
    #[serde(default, skip_serializing_if = "JobRuns::is_empty")]
    pub job_runs: JobRuns,
}

/// An object that exists, as far as it matters for whose it is.
#[derive(Debug, Clone, Copy)]
pub struct LiveObject<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// Its `creationTimestamp`, in seconds since 1970.
    pub created: Option<i64>,
    /// Whether our field manager has exactly one `Apply` entry in its `managedFields`.
    pub applied_by_us: bool,
    /// The mark in its annotations.
    pub mark: Option<CreationMark>,
}

/// Whose an object that exists is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is recorded with this uid, or we created it and crashed before its uid was recorded.
    Ours,
    /// Another object of the same name was ours; somebody deleted it and created this one.
    Replaced,
    /// It is not recorded.
    Unrecorded,
}

/// The way in which an inventory keeps an object from other BundleDeployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// It records the object, or takes it over at this moment.
    Owned,
    /// It is about to create an object of this name: whatever exists under it may be the work of a request that is not recorded yet.
    Installing,
}

/// Why an inventory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// More objects or namespaces than can be recorded.
    #[error("{count} {what} are more than an inventory records ({most})")]
    TooMany {
        /// How many.
        count: usize,
        /// Objects or namespaces.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// More bytes than can be recorded.
    #[error("the inventory has {bytes} bytes, {most} at most are recorded")]
    TooLarge {
        /// How many.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The encoding is not one that this version writes.
    #[error("the inventory cannot be read: {0}")]
    Malformed(String),
}

impl Inventory {
    /// An empty one.
    pub fn new(deployment: impl Into<String>) -> Self {
        Self {
            version: VERSION,
            deployment: deployment.into(),
            ..Self::default()
        }
    }

    /// Reads what [`Self::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, InventoryError> {
        if bytes.len() > MAX_BYTES {
            return Err(InventoryError::TooLarge {
                bytes: bytes.len(),
                most: MAX_BYTES,
            });
        }
        let inventory: Self = serde_json::from_slice(bytes)
            .map_err(|error| InventoryError::Malformed(error.to_string()))?;
        if inventory.version != VERSION {
            return Err(InventoryError::Malformed(format!(
                "version {} is not known",
                inventory.version
            )));
        }
        inventory.check_counts()?;
        Ok(inventory)
    }

    /// The same bytes for the same inventory.
    pub fn encode(&self) -> Result<Vec<u8>, InventoryError> {
        self.check_counts()?;
        let bytes = serde_json::to_vec(self)
            .map_err(|error| InventoryError::Malformed(error.to_string()))?;
        if bytes.len() > MAX_BYTES {
            return Err(InventoryError::TooLarge {
                bytes: bytes.len(),
                most: MAX_BYTES,
            });
        }
        Ok(bytes)
    }

    fn check_counts(&self) -> Result<(), InventoryError> {
        for (count, what, most) in [
            (self.objects.len(), "objects", MAX_OBJECTS),
            (self.namespaces.len(), "namespaces", MAX_NAMESPACES),
        ] {
            if count > most {
                return Err(InventoryError::TooMany { count, what, most });
            }
        }
        Ok(())
    }

    /// Makes sure that there is a key for marks; `random` is called if there is none.
    pub fn ensure_creation_key(&mut self, random: impl FnOnce() -> [u8; 32]) {
        self.creation_key
            .get_or_insert_with(|| CreationKey::new(random()));
    }

    /// Whether there is a key for marks.
    pub fn has_creation_key(&self) -> bool {
        self.creation_key.is_some()
    }

    /// The mark that every apply of the object `key` carries; `None` if there is no key yet.
    pub fn mark(&self, key: &str) -> Option<CreationMark> {
        Some(self.creation_key.as_ref()?.mark(key))
    }

    /// Whose the object `key` is, which exists as `live`. An intent counts only together with our mark, which nobody else can put on an object that does not
    /// exist yet.
    pub fn claim(&self, key: &str, live: LiveObject<'_>) -> Claim {
        match self.objects.get(key) {
            Some(Record::Uid(uid)) if !uid.is_empty() && uid == live.uid => Claim::Ours,
            Some(Record::Uid(_)) => Claim::Replaced,
            Some(Record::Intent(since))
                if self.is_applied(key, live)
                    && live.created.is_some_and(|created| {
                        created >= since.saturating_sub(CLOCK_TOLERANCE)
                    }) =>
            {
                Claim::Ours
            }
            Some(Record::Adoption(uid))
                if !uid.is_empty() && uid == live.uid && self.is_applied(key, live) =>
            {
                Claim::Ours
            }
            Some(Record::Intent(_) | Record::Adoption(_)) | None => Claim::Unrecorded,
        }
    }

    /// Returns whether an apply of ours has reached an object.
    fn is_applied(&self, key: &str, live: LiveObject<'_>) -> bool {
        live.applied_by_us && live.mark.is_some() && live.mark == self.mark(key)
    }

    /// What is recorded of the object `key`.
    pub fn get(&self, key: &str) -> Option<&Record> {
        self.objects.get(key)
    }

    /// Whether the object `key` is, or is about to be, ours.
    pub fn has(&self, key: &str) -> bool {
        self.objects.contains_key(key)
    }

    /// The recorded uid of the object `key`.
    pub fn uid(&self, key: &str) -> Option<&str> {
        match self.objects.get(key)? {
            Record::Uid(uid) => Some(uid),
            Record::Intent(_) | Record::Adoption(_) => None,
        }
    }

    /// Returns how the object `key` with this uid is reserved: no other deployment may have it. Until an installation is recorded, each of its objects is an
    /// intent, whose uid nobody knows.
    pub fn reserves(&self, key: &str, uid: &str) -> Option<Reservation> {
        match self.objects.get(key)? {
            Record::Uid(recorded) | Record::Adoption(recorded) => {
                (!uid.is_empty() && recorded == uid).then_some(Reservation::Owned)
            }
            Record::Intent(_) => Some(Reservation::Installing),
        }
    }

    /// Whether exactly this object is recorded.
    pub fn owns(&self, key: &str, uid: &str) -> bool {
        !uid.is_empty() && self.uid(key) == Some(uid)
    }

    /// Everything that is recorded.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.objects
            .iter()
            .map(|(key, record)| (key.as_str(), record))
    }

    /// Whether no object is recorded.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Records that the object with this uid is ours.
    pub fn record(&mut self, key: impl Into<String>, uid: impl Into<String>) {
        self.objects.insert(key.into(), Record::Uid(uid.into()));
    }

    /// Records that the object is about to be created. An earlier intent keeps its time, since the object may be of that.
    pub fn intend(&mut self, key: impl Into<String>, now: i64) {
        let record = self
            .objects
            .entry(key.into())
            .or_insert(Record::Intent(now));
        if let Record::Uid(_) | Record::Adoption(_) = record {
            *record = Record::Intent(now);
        }
    }

    /// Records that the object with this uid is about to be applied to, and so taken over where it is not ours yet. Returns what [`Self::forget_adoption`]
    /// has to know; `None` if the object is ours.
    pub fn adopt(&mut self, key: &str, uid: &str) -> Option<Adoption> {
        if self.owns(key, uid) {
            return None;
        }
        let record = Record::Adoption(uid.to_owned());
        let before = self.objects.insert(key.to_owned(), record);
        Some(Adoption {
            key: key.to_owned(),
            uid: uid.to_owned(),
            before,
        })
    }

    /// Forgets that an object was about to be taken over: the apply was not sent, or definitely refused. What was recorded before counts again.
    pub fn forget_adoption(&mut self, adoption: &Adoption) {
        let Adoption { key, uid, before } = adoption;
        if !matches!(self.objects.get(key), Some(Record::Adoption(adopted)) if adopted == uid) {
            return;
        }
        match before {
            Some(before) => self.objects.insert(key.clone(), before.clone()),
            None => self.objects.remove(key),
        };
    }

    /// Forgets the intent of the time `since` to create an object: the creation was not sent, or definitely refused. An earlier intent stays, since a
    /// request that was sent then may still have done its work.
    pub fn forget_intent(&mut self, key: &str, since: i64) {
        if self.objects.get(key) == Some(&Record::Intent(since)) {
            self.objects.remove(key);
        }
    }

    /// Forgets an object that is gone or let go.
    pub fn forget(&mut self, key: &str) {
        self.objects.remove(key);
        self.created_namespaces.remove(key);
    }

    /// Records whether the Namespace `key` is created because it is the target namespace, and not as an object of the content.
    pub fn set_created_namespace(&mut self, key: &str, is_created: bool) {
        if is_created {
            self.created_namespaces.insert(key.to_owned());
        } else {
            self.created_namespaces.remove(key);
        }
    }

    /// Returns whether the object `key` is a Namespace that was created because it was the target namespace, and not as an object of the content.
    pub fn is_created_namespace(&self, key: &str) -> bool {
        self.created_namespaces.contains(key)
    }

    /// Those recorded objects that `wanted` does not name.
    pub fn unwanted(&self, wanted: &HashSet<&str>) -> Vec<String> {
        self.objects
            .keys()
            .filter(|key| !wanted.contains(key.as_str()))
            .cloned()
            .collect()
    }

    /// The uid that namespace `name` had when objects were installed into it.
    pub fn namespace(&self, name: &str) -> Option<&str> {
        self.namespaces.get(name).map(String::as_str)
    }

    /// The recorded namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, &str)> {
        self.namespaces
            .iter()
            .map(|(name, uid)| (name.as_str(), uid.as_str()))
    }

    /// Records which namespace of this name objects are installed into.
    pub fn record_namespace(&mut self, name: impl Into<String>, uid: impl Into<String>) {
        self.namespaces.insert(name.into(), uid.into());
    }

    /// Forgets the namespaces that no recorded object lives in, and the created ones that are not recorded.
    pub fn shrink_namespaces(&mut self) {
        let used: BTreeSet<String> = self
            .objects
            .keys()
            .filter_map(|key| parts(key)?.1.map(str::to_owned))
            .collect();
        self.namespaces.retain(|name, _| used.contains(name));
        let objects = &self.objects;
        self.created_namespaces
            .retain(|key| objects.contains_key(key));
    }
}

#[cfg(test)]
mod tests;
