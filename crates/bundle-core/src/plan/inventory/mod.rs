//! Inventory of a BundleDeployment: the objects on the cluster that belong to the BundleDeployment,
//! by uid, and the uids of their namespaces. Labels and annotations never decide ownership, because
//! users with write permission on an object can set them.

mod creation;
mod limits;
mod namespaces;
mod ownership;
pub mod permission_groups;
mod record;

use std::collections::{BTreeMap, BTreeSet, HashSet};

pub use creation::{CreationKey, CreationMark};
pub use limits::{ObjectCounts, ObjectLimits, TooManyObjects};
pub use ownership::{LiveObject, ObjectOwnership, Reservation};
pub use record::{InstallationRecord, InstalledContent, RecordedSeals};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

pub use crate::plan::applyset::parts;
pub use crate::plan::content_key::{ContentKey, ContentKeyPrefix};

use crate::plan::jobs::JobRuns;
use crate::plan::rollout::RolloutSpec;

/// Maximum number of objects in one inventory, including objects that are still to be pruned.
pub const MAX_OBJECTS: usize = 25_000;
/// Maximum number of namespaces in one inventory.
pub const MAX_NAMESPACES: usize = 10_000;
/// Maximum size of the encoding before compression, in bytes.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Recorded templates, configurations and requesters count towards the limits of installed objects:
/// this number of bytes counts as one object. The limits reserve 8 KiB of memory for each object,
/// and the parsed form of a text can need ten times as much memory as the text.
const COUNTED_BYTES: usize = 1024;
/// Version of the encoding of an inventory.
const VERSION: u32 = 1;

/// Record of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ObjectRecord {
    /// The object with this uid belongs to the BundleDeployment. Another object of the same name
    /// does not belong to the BundleDeployment.
    Uid(String),
    /// The object did not exist at this time (in seconds since 1970), and the pod was about to
    /// create it. After a crash, an object that was created after this time belongs to the
    /// BundleDeployment if it has the creation mark.
    Intent(i64),
    /// The object with this uid exists and no inventory records it, and the pod was about to adopt
    /// it by an apply. After a crash, the object belongs to the BundleDeployment if it has the
    /// creation mark.
    Adoption(String),
}

/// Object that the next apply adopts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    key: String,
    uid: String,
    before: Option<ObjectRecord>,
}

impl Adoption {
    /// Returns the key of the object.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the uid of the object.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// Objects and namespaces of one BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inventory {
    version: u32,
    /// Name of the BundleDeployment, for users. The name of the ConfigMap contains the uid of the
    /// BundleDeployment.
    pub deployment: String,
    /// Key of the installation for which the namespaces were recorded last; empty before the first
    /// installation.
    #[serde(default, skip_serializing_if = "ContentKey::is_empty")]
    pub installation: ContentKey,
    /// True after the reconciler accepted the deletion of the BundleDeployment: the webhook
    /// reviewed the deletion, or a user admitted the deletion afterwards. This field is never reset
    /// to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deletion_accepted: bool,
    /// Record of the installation; `None` before the first installation, and in inventories of
    /// earlier versions of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<InstallationRecord>,
    /// Recorded objects. The keys are [`crate::object::ObjectId`] as text.
    #[serde(default)]
    objects: BTreeMap<String, ObjectRecord>,
    /// Uids of namespaces, by name: of each namespace that contains recorded objects, and of each
    /// namespace in [`Self::healthy_namespaces`].
    #[serde(default)]
    namespaces: BTreeMap<String, String>,
    /// Names of the namespaces of the content that was healthy last. After other content is
    /// installed, an automatic rollback can install the healthy content again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    healthy_namespaces: BTreeSet<String>,
    /// Field that only earlier versions of this project wrote. Its value is ignored.
    #[serde(
        default,
        rename = "createdNamespaces",
        skip_serializing,
        deserialize_with = "ignored"
    )]
    _created_namespaces: (),
    /// Secret key of the creation marks; `None` if no creation key exists yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    creation_key: Option<CreationKey>,
    /// Runs of Jobs: the content from which each Job was last applied, and the Jobs that have
    /// expired.
    #[serde(default, skip_serializing_if = "JobRuns::is_empty")]
    pub job_runs: JobRuns,
}

fn ignored<'de, D: Deserializer<'de>>(field: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(field).map(|_| ())
}

/// Error of encoding or decoding an inventory.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The inventory has more objects or namespaces than allowed.
    #[error("the inventory has {count} {what}, which is more than the limit of {most}")]
    TooMany {
        /// Number of objects or namespaces.
        count: usize,
        /// Kind of the limit: `objects` or `namespaces`.
        what: &'static str,
        /// Maximum number of objects or namespaces.
        most: usize,
    },
    /// The encoding exceeds the limit.
    #[error("the inventory has {bytes} bytes, which is more than the limit of {most} bytes")]
    TooLarge {
        /// Size of the encoding in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        most: usize,
    },
    /// The encoding is invalid.
    #[error("the inventory cannot be read: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The encoding has a version that this program does not support.
    #[error("the inventory cannot be read: version {0} is not known")]
    UnknownVersion(u32),
}

impl Inventory {
    /// Returns an empty inventory.
    pub fn new(deployment: impl Into<String>) -> Self {
        Self {
            version: VERSION,
            deployment: deployment.into(),
            ..Self::default()
        }
    }

    /// Decodes the result of [`Self::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, InventoryError> {
        if bytes.len() > MAX_BYTES {
            return Err(InventoryError::TooLarge {
                bytes: bytes.len(),
                most: MAX_BYTES,
            });
        }
        let inventory: Self = serde_json::from_slice(bytes).map_err(InventoryError::Malformed)?;
        if inventory.version != VERSION {
            return Err(InventoryError::UnknownVersion(inventory.version));
        }
        inventory.check_counts()?;
        Ok(inventory)
    }

    /// Returns the encoding of the inventory. Equal inventories have equal encodings.
    pub fn encode(&self) -> Result<Vec<u8>, InventoryError> {
        self.check_counts()?;
        let bytes = serde_json::to_vec(self).map_err(InventoryError::Malformed)?;
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

    /// Returns true if the content with this key prefix was installed completely last, even if an
    /// installation of other content has started since then.
    pub fn was_installed(&self, prefix: &ContentKeyPrefix) -> bool {
        let record = self.record.as_ref();
        let installed = record.and_then(|record| record.installed.as_ref());
        installed.is_some_and(|installed| installed.installation.has_prefix(prefix))
    }

    /// Returns true if the content with this key prefix is completely installed.
    pub fn is_installed(&self, prefix: &ContentKeyPrefix) -> bool {
        self.installation.has_prefix(prefix) && self.was_installed(prefix)
    }

    /// Returns true if the inventory records an installation that is not recorded as complete.
    pub fn is_unfinished(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.is_unfinished)
    }

    /// Returns true if no installation of this spec has begun. `generation` and `digest` are the
    /// generation and the digest of the spec that the requesters wrote.
    ///
    /// An installation of this spec has begun if an installation of this `generation` has begun, or
    /// if the last installation had a spec with this `digest`. This is also true after content was
    /// installed again without a write of the spec, for example by an automatic rollback, after a
    /// change of the class, or with new certificates.
    ///
    /// The comparison of digests is necessary for a write that reverts an earlier change before the
    /// change is installed. No installation begins for the generation of such a write.
    pub fn is_new_spec(&self, generation: i64, digest: &str) -> bool {
        let rollout = self.record.as_ref().map(|record| &record.rollout);
        let has_begun = rollout.is_some_and(|rollout| rollout.of_generation(generation).is_some());
        !has_begun && self.installation.spec_digest() != Some(digest)
    }

    /// Returns the inventory with the recorded rollout assigned to `spec`
    /// (`RolloutRecord::assign`). Returns `None` if the assignment changes nothing.
    ///
    /// The assignment can remove the record that the installed content is healthy. Therefore this
    /// function records the namespaces of the installed content before the assignment.
    pub fn with_assigned_rollout(&self, spec: RolloutSpec<'_>, now: i64) -> Option<Self> {
        let recorded = &self.record.as_ref()?.rollout;
        let mut rollout = recorded.clone();
        rollout.assign(spec, now);
        if rollout == *recorded {
            return None;
        }
        let mut inventory = self.clone();
        inventory.record_healthy_namespaces();
        inventory.record.get_or_insert_default().rollout = rollout;
        Some(inventory)
    }

    /// Sets the secret key of the creation marks if the inventory has no such key. `random` returns
    /// the new key.
    pub fn ensure_creation_key(&mut self, random: impl FnOnce() -> [u8; 32]) {
        self.creation_key
            .get_or_insert_with(|| CreationKey::new(random()));
    }

    /// Returns true if the inventory has a secret key of the creation marks.
    pub fn has_creation_key(&self) -> bool {
        self.creation_key.is_some()
    }

    /// Returns the creation mark that each apply of the object `key` contains; `None` if the
    /// inventory has no secret key of the creation marks.
    pub fn mark(&self, key: &str) -> Option<CreationMark> {
        Some(self.creation_key.as_ref()?.mark(key))
    }

    /// Returns the record of the object `key`; `None` if the object is not recorded.
    pub fn get(&self, key: &str) -> Option<&ObjectRecord> {
        self.objects.get(key)
    }

    /// Returns true if the object `key` is recorded: as owned, or as an object that the next apply
    /// creates or adopts.
    pub fn has(&self, key: &str) -> bool {
        self.objects.contains_key(key)
    }

    /// Returns the recorded uid of the object `key`; `None` if the inventory does not record the
    /// object as owned.
    pub fn uid(&self, key: &str) -> Option<&str> {
        match self.objects.get(key)? {
            ObjectRecord::Uid(uid) => Some(uid),
            ObjectRecord::Intent(_) | ObjectRecord::Adoption(_) => None,
        }
    }

    /// Returns true if the object with this uid is recorded under `key`.
    pub fn owns(&self, key: &str, uid: &str) -> bool {
        !uid.is_empty() && self.uid(key) == Some(uid)
    }

    /// Returns all records.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &ObjectRecord)> {
        self.objects
            .iter()
            .map(|(key, record)| (key.as_str(), record))
    }

    /// Returns the number of recorded objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the number of objects that count towards the limits of installed objects. All
    /// recorded objects count. Each KiB of recorded templates, configurations and requesters counts
    /// as one object, because these data stay in memory too.
    pub fn counted_objects(&self) -> usize {
        let record = self.record.as_ref();
        self.len() + record.map_or(0, InstallationRecord::request_bytes) / COUNTED_BYTES
    }

    /// Returns the number of bytes of requests for which the counted objects reserve memory.
    pub fn counted_bytes(&self) -> usize {
        self.counted_objects().saturating_mul(COUNTED_BYTES)
    }

    /// Returns the number of recorded objects that the inventory would have if the objects with
    /// `keys` were recorded too.
    pub fn len_with<'k>(&self, keys: impl Iterator<Item = &'k str>) -> usize {
        let added: HashSet<&str> = keys.filter(|key| !self.has(key)).collect();
        self.len() + added.len()
    }

    /// Returns true if no object is recorded.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Records the object with this uid as owned.
    pub fn record(&mut self, key: impl Into<String>, uid: impl Into<String>) {
        self.objects
            .insert(key.into(), ObjectRecord::Uid(uid.into()));
    }

    /// Records that the next apply creates the object. An earlier intent keeps its time, because
    /// its request may have created the object.
    pub fn record_intent(&mut self, key: impl Into<String>, now: i64) {
        let record = self
            .objects
            .entry(key.into())
            .or_insert(ObjectRecord::Intent(now));
        if let ObjectRecord::Uid(_) | ObjectRecord::Adoption(_) = record {
            *record = ObjectRecord::Intent(now);
        }
    }

    /// Records that the next apply adopts the object with this uid. Returns the argument for
    /// [`Self::revert_adoption`]; `None` if the object is already owned.
    pub fn adopt(&mut self, key: &str, uid: &str) -> Option<Adoption> {
        if self.owns(key, uid) {
            return None;
        }
        let record = ObjectRecord::Adoption(uid.to_owned());
        let before = self.objects.insert(key.to_owned(), record);
        Some(Adoption {
            key: key.to_owned(),
            uid: uid.to_owned(),
            before,
        })
    }

    /// Reverts [`Self::adopt`] after an apply that was not sent, or that the API server definitely
    /// rejected.
    pub fn revert_adoption(&mut self, adoption: &Adoption) {
        let Adoption { key, uid, before } = adoption;
        if !matches!(self.objects.get(key), Some(ObjectRecord::Adoption(adopted)) if adopted == uid)
        {
            return;
        }
        match before {
            Some(before) => self.objects.insert(key.clone(), before.clone()),
            None => self.objects.remove(key),
        };
    }

    /// Removes the intent with the time `since`, after a creation that was not sent, or that the
    /// API server rejected with certainty. An earlier intent is kept, because its request may still
    /// have created the object.
    pub fn remove_intent(&mut self, key: &str, since: i64) {
        if self.objects.get(key) == Some(&ObjectRecord::Intent(since)) {
            self.objects.remove(key);
        }
    }

    /// Removes an object that was deleted or released.
    pub fn remove(&mut self, key: &str) {
        self.objects.remove(key);
    }

    /// Returns the keys of recorded objects that are not in `wanted`.
    pub fn keys_except(&self, wanted: &HashSet<&str>) -> Vec<String> {
        self.objects
            .keys()
            .filter(|key| !wanted.contains(key.as_str()))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests;
