//! Drift detection: compares an object on the cluster with its state after the last apply. The
//! comparison uses the metadata. If the API server stores no `managedFields`, the comparison uses
//! the values of the fields.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::json;
use crate::plan::retry::delays;
use crate::reference::Digest;
use crate::version::apis;

/// Hash of this project's entry in `managedFields`, and of the labels that this project sets.
///
/// With server-side apply, a field that another actor changes or removes disappears from the entry
/// of this project. An apply by another actor under the manager name of this project changes the
/// time of the entry, in whole seconds. The fingerprint misses a second apply under this name in
/// the same second, and a change by a user who also restores `managedFields`. [`ObjectRevision`]
/// covers both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone, Copy)]
pub struct FieldsEntry<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    /// Subresource of the write. The text is empty for a write of the object itself.
    pub subresource: &'a str,
    /// API version of the fields.
    pub api_version: &'a str,
    /// Time of the manager's last change, in whole seconds since 1970; `None` if the entry has no
    /// time.
    pub time: Option<i64>,
    /// Owned fields, as `fieldsV1`.
    pub fields: &'a Value,
}

/// Returns the field manager of the last write that was not made through a subresource. Returns
/// `None` if this manager is `ours`, or if several managers wrote in the same second as the last
/// write. Users choose the name of a field manager, so the name is shown but never used for a
/// decision.
pub fn last_writer<'a>(
    ours: &str,
    entries: impl IntoIterator<Item = FieldsEntry<'a>>,
) -> Option<&'a str> {
    let mut last = None::<(i64, Option<&str>)>;
    for entry in entries {
        let (Some(time), true) = (entry.time, entry.subresource.is_empty()) else {
            continue;
        };
        last = match last {
            Some((latest, _)) if latest > time => last,
            Some((latest, manager)) if latest == time => {
                Some((time, manager.filter(|manager| *manager == entry.manager)))
            }
            _ => Some((time, Some(entry.manager))),
        };
    }
    last?.1.filter(|manager| *manager != ours)
}

impl Fingerprint {
    /// Returns the fingerprint of an object's metadata. Requires exactly one `Apply` entry of
    /// `manager` for the object itself, and otherwise returns `None`. No entry exists if other
    /// managers own all fields that `manager` applied, or if the API server stores no entries. Two
    /// entries exist if another client used the manager name too.
    pub fn of<'a>(
        manager: &str,
        entries: impl IntoIterator<Item = FieldsEntry<'a>>,
        labels: &BTreeMap<String, String>,
        ours: &[&str],
    ) -> Option<Self> {
        let mut entries = entries.into_iter().filter(|entry| {
            entry.manager == manager && entry.operation == "Apply" && entry.subresource.is_empty()
        });
        let (entry, None) = (entries.next()?, entries.next()) else {
            return None;
        };
        let mut hash = Sha256::new();
        json::update_hash(&mut hash, entry.fields);
        hash.update([0]);
        hash.update(entry.api_version);
        hash.update([0]);
        hash.update(entry.time.unwrap_or(i64::MIN).to_be_bytes());
        for label in ours {
            hash.update([0]);
            hash.update(labels.get(*label).map_or("", String::as_str));
        }
        Some(Self(first_half(hash)))
    }
}

/// Hash that changes with every write of the object except status updates.
///
/// For kinds whose `metadata.generation` counts every change outside of metadata and status, the
/// hash covers the generation and the rest of the metadata. For other kinds, the hash covers the
/// resource version. An object with the same hash as after the last apply was not written after
/// that apply, even if its `managedFields` differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectRevision([u8; 16]);

/// Metadata fields that an [`ObjectRevision`] covers.
#[derive(Debug, Clone, Copy)]
pub struct ObjectRevisionParts<'a> {
    /// API group of the object; empty for the core group.
    pub group: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// `metadata.generation`; `None` if the API server sets no generation.
    pub generation: Option<i64>,
    /// `metadata.resourceVersion`.
    pub resource_version: &'a str,
    /// Labels, annotations, finalizers and owner references, in a deterministic encoding.
    pub rest: &'a str,
}

impl ObjectRevision {
    /// Returns the hash of an object's metadata.
    pub fn of(parts: ObjectRevisionParts<'_>) -> Self {
        let mut hash = Sha256::new();
        match parts.generation {
            Some(generation) if generation > 0 && counts_generations(parts.group, parts.kind) => {
                hash.update(generation.to_be_bytes());
                hash.update(parts.rest);
            }
            _ => {
                hash.update([0]);
                hash.update(parts.resource_version);
            }
        }
        Self(first_half(hash))
    }
}

/// Returns true if, for objects of this kind, the API server increases `metadata.generation` with
/// each change outside of metadata and status. Source: the strategies of the built-in kinds in
/// Kubernetes, and of custom resources in apiextensions. For kinds that are not listed, the API
/// server sets `metadata.generation` once or never.
fn counts_generations(group: &str, kind: &str) -> bool {
    match group {
        "apps" => matches!(
            kind,
            "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet"
        ),
        "batch" => matches!(kind, "Job" | "CronJob"),
        "policy" => kind == "PodDisruptionBudget",
        "networking.k8s.io" => matches!(kind, "Ingress" | "NetworkPolicy"),
        "apiextensions.k8s.io" => kind == "CustomResourceDefinition",
        group => apis::is_custom(group),
    }
}

pub(in crate::plan) fn first_half(hash: Sha256) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&hash.finalize()[..16]);
    first
}

/// Returns one digest over the fingerprints and revisions of all objects. The order of the objects
/// has no effect. The inventory contains this digest. After a restart, a comparison of this digest
/// alone shows that no object has drifted.
pub fn combined(
    objects: impl IntoIterator<Item = (String, Fingerprint, ObjectRevision)>,
) -> Digest {
    let sorted: BTreeMap<String, ([u8; 16], [u8; 16])> = objects
        .into_iter()
        .map(|(key, fingerprint, revision)| (key, (fingerprint.0, revision.0)))
        .collect();
    let mut hash = Sha256::new();
    for (key, (fingerprint, revision)) in sorted {
        hash.update(key);
        hash.update([0]);
        hash.update(fingerprint);
        hash.update(revision);
    }
    Digest::from_hash(&hash.finalize())
}

/// State of one object, from its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectState {
    /// Fingerprint of the object; `None` if the object has no entry of this project in
    /// `managedFields`.
    pub fingerprint: Option<Fingerprint>,
    /// Hash that changes with every write of the object, except status updates.
    pub revision: ObjectRevision,
}

/// Drift of an installed object, from its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftState {
    /// The object is unchanged since the last apply.
    Unchanged,
    /// The object was written, and its metadata does not show which client wrote it. The reconciler
    /// applies the object again. If the object has not drifted, this apply changes nothing.
    MustVerify,
    /// Another actor owns a field or label of the content, or changed a field or label under the
    /// manager name of this project.
    Drifted,
    /// The object does not exist.
    Missing,
    /// The API server stores no `managedFields` for this kind: the object itself must be read.
    MustRead,
}

/// Compares the object after the last apply with its observed state. If `seen` is `None`, the
/// object does not exist.
pub fn drift_state(applied: ObjectState, seen: Option<ObjectState>) -> DriftState {
    let Some(seen) = seen else {
        return DriftState::Missing;
    };
    match (applied.fingerprint, seen.fingerprint) {
        (Some(applied), Some(seen)) if applied != seen => DriftState::Drifted,
        (Some(_), None) | (None, Some(_)) => DriftState::Drifted,
        _ if applied.revision == seen.revision => DriftState::Unchanged,
        (Some(_), Some(_)) => DriftState::MustVerify,
        (None, None) => DriftState::MustRead,
    }
}

/// Returns the pause before the next verification of an object that was verified `times` times in a
/// row without drift. The pause grows, because other controllers may write their own fields of the
/// object as often as they want.
pub fn verification_pause(times: u32) -> Duration {
    match times {
        0 => Duration::ZERO,
        times => delays::VERIFICATION.delay(times),
    }
}

/// Returns true if `live` has every field value of `desired`. The pod uses this comparison for
/// objects without `managedFields`.
pub fn covers(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (_, Value::Null) => true,
        (Value::Object(live), Value::Object(desired)) => {
            desired.iter().all(|(key, wanted)| match live.get(key) {
                Some(value) => covers(value, wanted),
                None => wanted.is_null(),
            })
        }
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len()
                && live
                    .iter()
                    .zip(desired)
                    .all(|(live, desired)| covers(live, desired))
        }
        (live, desired) => live == desired,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry<'a>(manager: &'a str, fields: &'a Value) -> FieldsEntry<'a> {
        FieldsEntry {
            manager,
            operation: "Apply",
            subresource: "",
            api_version: "v1",
            time: Some(100),
            fields,
        }
    }

    fn fingerprint(entries: &[FieldsEntry<'_>], owner: &str) -> Option<Fingerprint> {
        let labels = [("owner".to_owned(), owner.to_owned())].into();
        Fingerprint::of("ours", entries.iter().copied(), &labels, &["owner"])
    }

    #[test]
    fn last_writer_is_returned_only_if_it_is_unambiguous() {
        let fields = json!({});
        let at = |manager, time, subresource| FieldsEntry {
            time: Some(time),
            subresource,
            ..entry(manager, &fields)
        };
        for (entries, expected) in [
            (vec![], None),
            (vec![at("ours", 5, "")], None),
            (vec![at("ours", 5, ""), at("ana", 6, "")], Some("ana")),
            (vec![at("ana", 6, ""), at("ours", 5, "")], Some("ana")),
            (vec![at("ana", 4, ""), at("ours", 5, "")], None),
            (vec![at("ana", 5, ""), at("ours", 5, "")], None),
            (vec![at("ana", 6, ""), at("bob", 6, "")], None),
            (vec![at("ana", 6, ""), at("ana", 6, "")], Some("ana")),
            (
                vec![at("ana", 6, ""), at("kubelet", 7, "status")],
                Some("ana"),
            ),
        ] {
            assert_eq!(last_writer("ours", entries), expected);
        }
    }

    #[test]
    fn fingerprint_covers_own_apply_entry_and_own_labels() {
        let fields = json!({ "f:data": { "f:a": {} } });
        let ours = entry("ours", &fields);
        let expected = fingerprint(&[ours], "web");
        assert!(expected.is_some());
        let other_fields = json!({ "f:data": {} });
        let theirs = entry("theirs", &other_fields);
        let update = FieldsEntry {
            operation: "Update",
            ..ours
        };
        let status = FieldsEntry {
            subresource: "status",
            ..ours
        };
        for (name, entries, owner, same) in [
            ("others beside it", vec![theirs, ours], "web", true),
            (
                "an update under our name beside it",
                vec![ours, update],
                "web",
                true,
            ),
            (
                "a status entry under our name beside it",
                vec![status, ours],
                "web",
                true,
            ),
            (
                "other fields",
                vec![entry("ours", &other_fields)],
                "web",
                false,
            ),
            (
                "another time",
                vec![FieldsEntry {
                    time: Some(101),
                    ..ours
                }],
                "web",
                false,
            ),
            (
                "no time",
                vec![FieldsEntry { time: None, ..ours }],
                "web",
                false,
            ),
            (
                "another version",
                vec![FieldsEntry {
                    api_version: "v2",
                    ..ours
                }],
                "web",
                false,
            ),
            ("another label", vec![ours], "other", false),
        ] {
            assert_eq!(fingerprint(&entries, owner) == expected, same, "{name}");
        }
        for (name, entries) in [
            ("no entry", vec![]),
            ("two entries", vec![ours, ours]),
            ("only an update", vec![update]),
            ("only a status", vec![status]),
            ("only others", vec![theirs]),
        ] {
            assert_eq!(fingerprint(&entries, "web"), None, "{name}");
        }
    }

    fn revision(
        group: &str,
        kind: &str,
        generation: i64,
        version: &str,
        rest: &str,
    ) -> ObjectRevision {
        ObjectRevision::of(ObjectRevisionParts {
            group,
            kind,
            generation: Some(generation),
            resource_version: version,
            rest,
        })
    }

    #[test]
    fn revision_ignores_status_updates_of_kinds_with_generations() {
        for (group, kind, counts) in [
            ("apps", "Deployment", true),
            ("batch", "CronJob", true),
            ("shop.example.com", "Queue", true),
            ("gateway.networking.k8s.io", "HTTPRoute", true),
            ("apiextensions.k8s.io", "CustomResourceDefinition", true),
            ("", "ConfigMap", false),
            ("", "Service", false),
            ("rbac.authorization.k8s.io", "Role", false),
            ("scheduling.k8s.io", "PriorityClass", false),
            ("autoscaling", "HorizontalPodAutoscaler", false),
        ] {
            let first = revision(group, kind, 1, "10", "labels");
            let same = revision(group, kind, 1, "11", "labels") == first;
            assert_eq!(same, counts, "{group} {kind}");
            assert_eq!(revision(group, kind, 1, "10", "labels"), first);
            assert_ne!(revision(group, kind, 2, "11", "labels"), first);
            assert_ne!(revision(group, kind, 1, "11", "others"), first);
        }
        let none = revision("apps", "Deployment", 0, "10", "labels");
        assert_ne!(revision("apps", "Deployment", 0, "11", "labels"), none);
    }

    #[test]
    fn drift_state_of_every_pair() {
        let fields = [json!({ "f:a": {} }), json!({ "f:b": {} })];
        let prints = fields
            .each_ref()
            .map(|fields| fingerprint(&[entry("ours", fields)], "web"));
        let [a, b] = prints;
        let one = revision("", "ConfigMap", 0, "1", "");
        let two = revision("", "ConfigMap", 0, "2", "");
        let state = |fingerprint, revision| ObjectState {
            fingerprint,
            revision,
        };
        for (applied, seen, expected) in [
            (state(a, one), Some(state(a, one)), DriftState::Unchanged),
            (state(a, one), Some(state(a, two)), DriftState::MustVerify),
            (state(a, one), Some(state(b, two)), DriftState::Drifted),
            (state(a, one), Some(state(b, one)), DriftState::Drifted),
            (state(a, one), Some(state(None, two)), DriftState::Drifted),
            (state(None, one), Some(state(a, two)), DriftState::Drifted),
            (
                state(None, one),
                Some(state(None, two)),
                DriftState::MustRead,
            ),
            (
                state(None, one),
                Some(state(None, one)),
                DriftState::Unchanged,
            ),
            (state(a, one), None, DriftState::Missing),
            (state(None, one), None, DriftState::Missing),
        ] {
            assert_eq!(drift_state(applied, seen), expected, "{applied:?} {seen:?}");
        }
    }

    #[test]
    fn one_digest_for_any_order_and_another_for_any_change() {
        let a = fingerprint(&[entry("ours", &json!({ "f:a": {} }))], "web").unwrap();
        let b = fingerprint(&[entry("ours", &json!({ "f:b": {} }))], "web").unwrap();
        let one = revision("", "ConfigMap", 0, "1", "");
        let two = revision("", "ConfigMap", 0, "2", "");
        let key = |name: &str| name.to_owned();
        let digest = combined([(key("x"), a, one), (key("y"), b, one)]);
        assert_eq!(digest, combined([(key("y"), b, one), (key("x"), a, one)]));
        assert_ne!(digest, combined([(key("x"), a, two), (key("y"), b, one)]));
        assert_ne!(digest, combined([(key("y"), a, one), (key("x"), b, one)]));
        assert_ne!(digest, combined([(key("x"), a, one)]));
    }

    #[test]
    fn verifications_become_rarer_and_never_stop() {
        let pauses = [0, 1, 2, 3, 7, 8, 100].map(|times| verification_pause(times).as_millis());
        assert_eq!(pauses, [0, 500, 1_000, 2_000, 32_000, 60_000, 60_000]);
    }

    #[test]
    fn a_live_object_may_have_more_but_not_less() {
        let live =
            json!({ "data": { "a": "1", "b": "2" }, "list": [{ "name": "x", "default": 1 }] });
        for (desired, covered) in [
            (json!({ "data": { "a": "1" } }), true),
            (
                json!({ "data": { "a": "1" }, "list": [{ "name": "x" }] }),
                true,
            ),
            (json!({ "data": { "c": null } }), true),
            (json!({ "data": { "a": "2" } }), false),
            (json!({ "data": { "c": "1" } }), false),
            (json!({ "list": [] }), false),
        ] {
            assert_eq!(covers(&live, &desired), covered, "{desired}");
        }
    }
}
