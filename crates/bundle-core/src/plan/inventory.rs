//! The inventory of a BundleDeployment: which objects on a cluster are its own, by uid, and in which namespaces they live.
//! Labels and annotations of objects never decide that: whoever may write an object can write them.
//! Not here: where the inventory is stored, or asking the cluster what exists.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::applyset::GroupKind;

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
    /// It did not exist at this time (seconds since 1970), and we were about to create it. A crash may have come between.
    Intent(i64),
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
    /// By [`crate::object::ObjectId`] in text.
    #[serde(default)]
    objects: BTreeMap<String, Record>,
    /// The uid of each namespace that objects live in, by name.
    #[serde(default)]
    namespaces: BTreeMap<String, String>,
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

    /// Whose the object `key` is, which exists as `live`.
    pub fn claim(&self, key: &str, live: LiveObject<'_>) -> Claim {
        match self.objects.get(key) {
            Some(Record::Uid(uid)) if !uid.is_empty() && uid == live.uid => Claim::Ours,
            Some(Record::Uid(_)) => Claim::Replaced,
            Some(Record::Intent(since))
                if live.applied_by_us
                    && live.created.is_some_and(|created| {
                        created >= since.saturating_sub(CLOCK_TOLERANCE)
                    }) =>
            {
                Claim::Ours
            }
            Some(Record::Intent(_)) | None => Claim::Unrecorded,
        }
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
            Record::Intent(_) => None,
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
        if let Record::Uid(_) = record {
            *record = Record::Intent(now);
        }
    }

    /// Forgets an object that is gone or let go.
    pub fn forget(&mut self, key: &str) {
        self.objects.remove(key);
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

    /// Forgets the namespaces that no recorded object lives in.
    pub fn shrink_namespaces(&mut self) {
        let used: BTreeSet<String> = self
            .objects
            .keys()
            .filter_map(|key| parts(key)?.1.map(str::to_owned))
            .collect();
        self.namespaces.retain(|name, _| used.contains(name));
    }
}

/// Kind, namespace and name in a key: the text of a [`crate::object::ObjectId`], such as `Deployment.apps/team-a/web`.
pub fn parts(key: &str) -> Option<(GroupKind, Option<&str>, &str)> {
    let mut parts = key.split('/');
    let kind = GroupKind::parse(parts.next()?);
    let (first, second) = (parts.next()?, parts.next());
    if parts.next().is_some() {
        return None;
    }
    Some(match second {
        Some(name) => (kind, Some(first), name),
        None => (kind, None, first),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::ObjectId;

    const KEY: &str = "ConfigMap/team-a/web";

    fn live(uid: &str, created: i64, applied_by_us: bool) -> LiveObject<'_> {
        LiveObject {
            uid,
            created: Some(created),
            applied_by_us,
        }
    }

    #[test]
    fn only_the_recorded_uid_is_ours() {
        let mut inventory = Inventory::new("web");
        assert_eq!(
            inventory.claim(KEY, live("a", 100, true)),
            Claim::Unrecorded
        );
        inventory.record(KEY, "a");
        for (uid, claim) in [
            ("a", Claim::Ours),
            ("b", Claim::Replaced),
            ("", Claim::Replaced),
        ] {
            assert_eq!(inventory.claim(KEY, live(uid, 100, true)), claim, "{uid}");
        }
        assert!(inventory.owns(KEY, "a") && !inventory.owns(KEY, "b") && !inventory.owns(KEY, ""));
    }

    #[test]
    fn an_intent_claims_what_we_created_after_it() {
        let mut inventory = Inventory::new("web");
        inventory.intend(KEY, 100);
        for (created, applied_by_us, claim) in [
            (100, true, Claim::Ours),
            (98, true, Claim::Ours),
            (97, true, Claim::Unrecorded),
            (500, true, Claim::Ours),
            (100, false, Claim::Unrecorded),
        ] {
            let found = inventory.claim(KEY, live("a", created, applied_by_us));
            assert_eq!(found, claim, "{created} {applied_by_us}");
        }
        let unknown = LiveObject {
            uid: "a",
            created: None,
            applied_by_us: true,
        };
        assert_eq!(inventory.claim(KEY, unknown), Claim::Unrecorded);
    }

    #[test]
    fn a_second_intent_keeps_the_first_time_and_one_after_a_deletion_is_new() {
        let mut inventory = Inventory::new("web");
        inventory.intend(KEY, 100);
        inventory.intend(KEY, 200);
        assert_eq!(inventory.claim(KEY, live("a", 150, true)), Claim::Ours);
        inventory.record(KEY, "a");
        inventory.intend(KEY, 300);
        assert_eq!(
            inventory.claim(KEY, live("a", 150, true)),
            Claim::Unrecorded
        );
    }

    #[test]
    fn encoding_is_canonical_strict_and_bounded() {
        let mut inventory = Inventory::new("web");
        inventory.record("Deployment.apps/team-a/web", "1");
        inventory.intend(KEY, 0);
        inventory.record_namespace("team-a", "7");
        let bytes = inventory.encode().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"version":1,"deployment":"web","objects":{"ConfigMap/team-a/web":{"intent":0},"Deployment.apps/team-a/web":{"uid":"1"}},"namespaces":{"team-a":"7"}}"#
        );
        assert_eq!(Inventory::decode(&bytes).unwrap(), inventory);
        for malformed in [
            "",
            "[]",
            r#"{"version":2,"deployment":"web"}"#,
            r#"{"version":1,"deployment":"web","more":1}"#,
            r#"{"version":1,"deployment":"web","objects":{"a":{"uid":"1","intent":1}}}"#,
        ] {
            let error = Inventory::decode(malformed.as_bytes());
            assert!(
                matches!(error, Err(InventoryError::Malformed(_))),
                "{malformed}"
            );
        }
        for n in 0..MAX_OBJECTS {
            inventory.record(format!("ConfigMap/n/{n}"), "u");
        }
        assert_eq!(
            inventory.encode().unwrap_err().to_string(),
            "25002 objects are more than an inventory records (25000)"
        );
        let long = vec![b' '; MAX_BYTES + 1];
        assert!(matches!(
            Inventory::decode(&long),
            Err(InventoryError::TooLarge { .. })
        ));
    }

    #[test]
    fn namespaces_are_kept_while_objects_live_in_them() {
        let mut inventory = Inventory::new("web");
        inventory.record(KEY, "a");
        inventory.record("ClusterRole.rbac.authorization.k8s.io/team-b", "b");
        inventory.record_namespace("team-a", "1");
        inventory.record_namespace("team-b", "2");
        inventory.shrink_namespaces();
        assert_eq!(
            inventory.namespaces().collect::<Vec<_>>(),
            [("team-a", "1")]
        );
    }

    #[test]
    fn a_key_is_the_text_of_an_id() {
        let id = |group: &str, namespace: Option<&str>| ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: "Thing".to_owned(),
            namespace: namespace.map(str::to_owned),
            name: "x.example.com".to_owned(),
        };
        for id in [
            id("", None),
            id("example.com", None),
            id("example.com", Some("team-a")),
        ] {
            let key = id.to_string();
            let (kind, namespace, name) = parts(&key).unwrap();
            assert_eq!(
                (kind.group.as_str(), kind.kind.as_str(), namespace, name),
                id.identity()
            );
        }
        assert_eq!(parts("ConfigMap"), None);
        assert_eq!(parts("ConfigMap/a/b/c"), None);
    }

    proptest! {
        #[test]
        fn pruning_names_all_that_is_recorded_and_not_wanted(
            recorded in proptest::collection::btree_set("[a-c]{1,3}", 0..20),
            wanted in proptest::collection::btree_set("[a-c]{1,3}", 0..20),
        ) {
            let mut inventory = Inventory::new("web");
            for key in &recorded {
                inventory.record(key.clone(), "u");
            }
            let wanted_keys: HashSet<&str> = wanted.iter().map(String::as_str).collect();
            let unwanted: BTreeSet<String> = inventory.unwanted(&wanted_keys).into_iter().collect();
            prop_assert_eq!(unwanted, recorded.difference(&wanted).cloned().collect());
        }
    }
}
