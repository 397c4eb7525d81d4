//! Applies that would not change their object. Such an apply is not sent: the last apply sent an
//! equal request, and the object has not been written since that apply.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::json;
use crate::object::ObjectId;
use crate::plan::drift::{DriftState, ObjectState, drift_state, first_half};
use crate::plan::inventory::CreationMark;
use crate::plan::jobs;
use crate::version::apis;

/// Hash of everything that determines the effect of an apply on an existing object, except the
/// identity of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestHash([u8; 16]);

impl RequestHash {
    /// Returns the hash of an apply of `values` as the user `installer`. `mark` is the creation
    /// mark in the apply request.
    pub fn of(values: &Value, mark: Option<CreationMark>, installer: &str) -> Self {
        let mut hash = Sha256::new();
        let mark = mark.map(|mark| mark.to_string()).unwrap_or_default();
        for part in [installer, &mark] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.update(json::length(values).to_be_bytes());
        json::update_hash(&mut hash, values);
        Self(first_half(hash))
    }
}

/// Returns true if an apply of this object can be skipped. Applies of Jobs are always sent: after
/// its TTL, Kubernetes can delete a Job at any time, and new content must run a deleted Job again.
/// Applies of custom resources are always sent too: after a change of the
/// CustomResourceDefinition, the API server can store the same values in another form.
fn can_skip(id: &ObjectId) -> bool {
    !jobs::is_job(&id.group, &id.kind) && !apis::is_custom(&id.group)
}

/// Last successful apply of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastApply {
    /// State of the object after the apply.
    pub state: ObjectState,
    /// Hash of the apply request.
    pub request: RequestHash,
}

/// Facts about the apply of one object. If a fact is unknown, the apply is needed.
#[derive(Debug, Clone, Copy)]
pub struct PlannedApply<'a> {
    /// Identity of the object.
    pub id: &'a ObjectId,
    /// Uid of the object that the apply changes; `None` if the apply creates the object.
    pub uid: Option<&'a str>,
    /// Hash of the apply request.
    pub request: RequestHash,
    /// Last apply; `None` if no apply is known. Also `None` if the API server responded to the last
    /// apply with a warning, or if the object has drifted or must be verified.
    pub last: Option<LastApply>,
    /// Uid and state of the object that a watch reports; `None` if no watch reports the object.
    pub seen: Option<(&'a str, ObjectState)>,
    /// True if the inventory of the BundleDeployment records the object with this uid.
    pub is_owned: bool,
    /// True if the ownership of fields was changed for this apply.
    pub has_moved_fields: bool,
}

impl PlannedApply<'_> {
    /// Returns true if the apply may change the object. Returns false if the apply certainly
    /// changes nothing.
    pub fn is_needed(&self) -> bool {
        let (Some(uid), Some(last), Some((seen_uid, seen))) = (self.uid, self.last, self.seen)
        else {
            return true;
        };
        let is_in_place = last.state.fingerprint.is_some()
            && drift_state(last.state, Some(seen)) == DriftState::Unchanged;
        let is_same = seen_uid == uid && last.request == self.request && is_in_place;
        !(is_same && self.is_owned && can_skip(self.id)) || self.has_moved_fields
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::plan::drift::{FieldsEntry, Fingerprint, ObjectRevision, ObjectRevisionParts};
    use crate::plan::inventory::Inventory;

    fn id(group: &str, kind: &str) -> ObjectId {
        ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some("team-a".to_owned()),
            name: "web".to_owned(),
        }
    }

    fn state(fields: Option<&Value>, version: &str) -> ObjectState {
        let entry = fields.map(|fields| FieldsEntry {
            manager: "ours",
            operation: "Apply",
            subresource: "",
            api_version: "v1",
            time: Some(100),
            fields,
        });
        ObjectState {
            fingerprint: Fingerprint::of("ours", entry, &BTreeMap::new(), &[]),
            revision: ObjectRevision::of(ObjectRevisionParts {
                group: "",
                kind: "ConfigMap",
                generation: None,
                resource_version: version,
                rest: "",
            }),
        }
    }

    fn request(text: &str) -> RequestHash {
        RequestHash::of(&json!({"data": {"a": text}}), None, "installer")
    }

    #[test]
    fn apply_is_skipped_only_if_every_fact_shows_that_it_changes_nothing() {
        let fields = [json!({"f:a": {}}), json!({"f:b": {}})];
        let applied = state(Some(&fields[0]), "5");
        let last = LastApply {
            state: applied,
            request: request("one"),
        };
        let (config_map, job) = (id("", "ConfigMap"), id("batch", "Job"));
        let queue = id("shop.example.com", "Queue");
        let unchanged = PlannedApply {
            id: &config_map,
            uid: Some("ours"),
            request: request("one"),
            last: Some(last),
            seen: Some(("ours", applied)),
            is_owned: true,
            has_moved_fields: false,
        };
        assert!(!unchanged.is_needed());
        let without_fields = state(None, "5");
        let needed: [(&str, PlannedApply<'_>); 14] = [
            (
                "the object is created",
                PlannedApply {
                    uid: None,
                    ..unchanged
                },
            ),
            (
                "other values",
                PlannedApply {
                    request: request("two"),
                    ..unchanged
                },
            ),
            (
                "unknown last apply",
                PlannedApply {
                    last: None,
                    ..unchanged
                },
            ),
            (
                "not watched",
                PlannedApply {
                    seen: None,
                    ..unchanged
                },
            ),
            (
                "the watch reports an earlier object of this name",
                PlannedApply {
                    seen: Some(("theirs", applied)),
                    ..unchanged
                },
            ),
            (
                "another object of this name",
                PlannedApply {
                    uid: Some("theirs"),
                    ..unchanged
                },
            ),
            (
                "another actor owns a field",
                PlannedApply {
                    seen: Some(("ours", state(Some(&fields[1]), "5"))),
                    ..unchanged
                },
            ),
            (
                "another actor wrote the object",
                PlannedApply {
                    seen: Some(("ours", state(Some(&fields[0]), "6"))),
                    ..unchanged
                },
            ),
            (
                "the entry in managedFields was removed",
                PlannedApply {
                    seen: Some(("ours", without_fields)),
                    ..unchanged
                },
            ),
            (
                "the API server stores no managedFields",
                PlannedApply {
                    last: Some(LastApply {
                        state: without_fields,
                        ..last
                    }),
                    seen: Some(("ours", without_fields)),
                    ..unchanged
                },
            ),
            (
                "not owned",
                PlannedApply {
                    is_owned: false,
                    ..unchanged
                },
            ),
            (
                "the ownership of fields was changed",
                PlannedApply {
                    has_moved_fields: true,
                    ..unchanged
                },
            ),
            (
                "a custom resource",
                PlannedApply {
                    id: &queue,
                    ..unchanged
                },
            ),
            (
                "a Job",
                PlannedApply {
                    id: &job,
                    ..unchanged
                },
            ),
        ];
        for (name, apply) in needed {
            assert!(apply.is_needed(), "{name}");
        }
    }

    #[test]
    fn hash_covers_values_creation_mark_and_installer() {
        let mut inventory = Inventory::new("web");
        inventory.ensure_creation_key(|| [7; 32]);
        let mark = inventory.mark("ConfigMap/team-a/web");
        let values = json!({"data": {"a": "one"}});
        let hash = RequestHash::of(&values, mark, "installer");
        assert_eq!(RequestHash::of(&values, mark, "installer"), hash);
        assert_ne!(RequestHash::of(&values, None, "installer"), hash);
        assert_ne!(RequestHash::of(&values, mark, "other"), hash);
        assert_ne!(RequestHash::of(&json!({}), mark, "installer"), hash);
    }
}
