//! Ownership of fields in `metadata.managedFields`, which decides what a later server-side apply
//! removes. A user who changes this ownership can change the spec through the next apply of another
//! user:
//! - A field with a second owner stays, although its first owner no longer sets the field.
//! - A field that was added to the field set of an apply is removed by the next apply that does not
//!   set the field. If this field is `metadata.resourceVersion`, the API server rejects the apply.
//! - Some clients move the field set of another write to the field set of their apply, so that their
//!   next apply removes its fields. `kubectl` does this if the set owns its annotation
//!   ([`LAST_APPLIED`]).
//!
//! A write that changes only labels, annotations and finalizers changes only the ownership of these
//! fields. All other ownership is compared, without an exception for the entry of the writer.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Kind, LAST_APPLIED, is_guarded_name};

/// Manager with which the API server replaces old managers of updates
/// (`k8s.io/apimachinery/pkg/util/managedfields/internal/capmanagers.go`).
const MERGED_MANAGER: &str = "ancient-changes";
/// Number of entries of updates above which the API server merges the oldest entries.
const MAX_UPDATE_ENTRIES: usize = 10;

/// Manager, subresource and version of an entry. The API server and the next apply identify an entry
/// by these values and by its operation.
type Manager<'a> = (&'a str, &'a str, &'a str);

/// Returns true if an update from `old` to `new` changes only the ownership of labels and
/// annotations, and of finalizers except `finalizer`. The ownership of guarded labels and
/// annotations ([`is_guarded_name`]) cannot change either. If `kind` is not BundleDeployment, the
/// ownership of the spec can change, because this spec cannot change.
///
/// The update may merge entries of updates into one entry of [`MERGED_MANAGER`], as the API server
/// does. Then no merged entry may own the annotation [`LAST_APPLIED`].
pub(super) fn is_kept(kind: Kind, old: &Value, new: &Value, finalizer: &str) -> bool {
    let guard = Guard::new(kind, finalizer);
    let (old, new) = (guard.ownership(old), guard.ownership(new));
    guard.same_sets(&old.applied, &new.applied)
        && (guard.same_sets(&old.updated, &new.updated) || guard.is_merged(&old, &new))
}

/// The entries that own guarded fields, with their field sets.
#[derive(Debug, Default)]
struct Ownership<'a> {
    applied: BTreeMap<Manager<'a>, &'a Value>,
    updated: BTreeMap<Manager<'a>, &'a Value>,
    /// Number of all entries of updates.
    update_entries: usize,
}

/// Part of a field set.
#[derive(Debug, Clone, Copy)]
enum Level {
    /// The whole set.
    Set,
    /// `f:metadata`.
    Metadata,
    /// `f:labels`, `f:annotations` or `f:finalizers`.
    Members,
    /// Any other field.
    Other,
}

impl Level {
    fn of_member(self, key: &str) -> Self {
        match (self, key) {
            (Self::Set, "f:metadata") => Self::Metadata,
            (Self::Metadata, "f:labels" | "f:annotations" | "f:finalizers") => Self::Members,
            _ => Self::Other,
        }
    }
}

/// Finds the guarded fields of field sets. Labels, annotations and finalizers that every writer may
/// own are not guarded.
struct Guard {
    /// Key of the annotation [`LAST_APPLIED`] in a field set.
    annotation: String,
    /// Key of the finalizer in a field set.
    finalizer: String,
    kind: Kind,
}

impl Guard {
    fn new(kind: Kind, finalizer: &str) -> Self {
        Self {
            kind,
            annotation: format!("f:{LAST_APPLIED}"),
            // In `fieldsV1`, the key of a finalizer is `v:` and the finalizer as JSON.
            finalizer: format!("v:{}", Value::from(finalizer)),
        }
    }

    fn ownership<'a>(&self, object: &'a Value) -> Ownership<'a> {
        let mut ownership = Ownership::default();
        let entries = object["metadata"]["managedFields"].as_array();
        for entry in entries.into_iter().flatten() {
            let text = |field: &str| entry[field].as_str().unwrap_or_default();
            let is_applied = text("operation") == "Apply";
            ownership.update_entries += usize::from(!is_applied);
            let fields = &entry["fieldsV1"];
            if !self.has_guarded(Level::Set, fields) {
                continue;
            }
            let sets = if is_applied {
                &mut ownership.applied
            } else {
                &mut ownership.updated
            };
            let manager = (text("manager"), text("subresource"), text("apiVersion"));
            sets.insert(manager, fields);
        }
        ownership
    }

    /// Returns the members of `fields` that are guarded or contain guarded fields.
    fn guarded<'a>(
        &self,
        level: Level,
        fields: &'a Value,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let members = fields.as_object().into_iter().flatten();
        members.filter(move |(key, value)| self.is_guarded(level, key, value))
    }

    fn has_guarded(&self, level: Level, fields: &Value) -> bool {
        self.guarded(level, fields).next().is_some()
    }

    fn is_guarded(&self, level: Level, key: &str, value: &Value) -> bool {
        // A field without members is owned as a whole.
        let is_leaf = value.as_object().is_none_or(Map::is_empty);
        match level {
            Level::Other => true,
            Level::Set if key == "f:spec" => self.kind == Kind::BundleDeployment,
            Level::Members => {
                let name = key.strip_prefix("f:");
                let is_guarded = name.is_some_and(|name| is_guarded_name(self.kind, name));
                is_guarded || *key == self.finalizer || !is_leaf
            }
            Level::Set | Level::Metadata => {
                let inner = level.of_member(key);
                matches!(inner, Level::Other) || is_leaf || self.has_guarded(inner, value)
            }
        }
    }

    fn same_sets(
        &self,
        old: &BTreeMap<Manager<'_>, &Value>,
        new: &BTreeMap<Manager<'_>, &Value>,
    ) -> bool {
        old.len() == new.len()
            && old.iter().all(|(manager, fields)| {
                let found = new.get(manager);
                found.is_some_and(|found| self.same(Level::Set, fields, found))
            })
    }

    /// Returns true if two field sets contain the same guarded fields.
    fn same(&self, level: Level, left: &Value, right: &Value) -> bool {
        if !left.is_object() || !right.is_object() {
            return left == right;
        }
        let mut members = self.guarded(level, left);
        members.all(|(key, value)| {
            right.get(key).is_some_and(|other| {
                self.is_guarded(level, key, other) && self.same(level.of_member(key), value, other)
            })
        }) && self.guarded(level, left).count() == self.guarded(level, right).count()
    }

    /// Returns true if the entries of updates in `new` are those in `old` after a merge by the API
    /// server of all entries that are missing in `new`, and if no merged entry owns the annotation
    /// [`LAST_APPLIED`].
    fn is_merged(&self, old: &Ownership<'_>, new: &Ownership<'_>) -> bool {
        let is_merged_manager = |manager: &Manager<'_>| matches!(*manager, (MERGED_MANAGER, "", _));
        if old.update_entries < MAX_UPDATE_ENTRIES {
            return false;
        }
        let mut kept = BTreeMap::new();
        let mut merged: BTreeMap<&str, Value> = BTreeMap::new();
        for (manager, fields) in &old.updated {
            if !is_merged_manager(manager) && new.updated.contains_key(manager) {
                kept.insert(*manager, *fields);
            } else {
                let set = merged.entry(manager.2).or_default();
                merge(set, &self.copy(Level::Set, fields));
            }
        }
        let owns_annotation = |set: &Value| {
            set["f:metadata"]["f:annotations"]
                .get(&self.annotation)
                .is_some()
        };
        for (version, set) in &merged {
            if owns_annotation(set) {
                return false;
            }
            kept.insert((MERGED_MANAGER, "", *version), set);
        }
        self.same_sets(&kept, &new.updated)
    }

    /// Returns a copy of the guarded fields in `fields`.
    fn copy(&self, level: Level, fields: &Value) -> Value {
        if !fields.is_object() {
            return fields.clone();
        }
        let members = self.guarded(level, fields).map(|(key, value)| {
            let copy = self.copy(level.of_member(key), value);
            (key.clone(), copy)
        });
        members.collect::<Map<_, _>>().into()
    }
}

/// Adds the fields of `more` to `set`. A field that one set owns as a whole, and of which the other
/// set owns members, is owned as a member `.` afterwards.
fn merge(set: &mut Value, more: &Value) {
    match (&mut *set, more) {
        (Value::Object(set), Value::Object(more)) => {
            if set.is_empty() != more.is_empty() {
                set.insert(".".to_owned(), Value::Object(Map::new()));
            }
            for (key, value) in more {
                merge(set.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Null, more) => *set = more.clone(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FINALIZER: &str = "example.com/installed";

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "core.rukpak.io/v1alpha1",
            "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2026-01-01T00:00:00Z",
        })
    }

    fn kept(old: &[Value], new: &[Value]) -> bool {
        let object = |entries: &[Value]| json!({"metadata": {"managedFields": entries}});
        is_kept(
            Kind::BundleDeployment,
            &object(old),
            &object(new),
            FINALIZER,
        )
    }

    #[test]
    fn another_owner_of_a_field_changes_the_ownership() {
        let spec = json!({"f:spec": {"f:config": {}, "f:template": {"f:spec": {}}}});
        let config = json!({"f:spec": {"f:config": {}}});
        let rest = json!({"f:spec": {"f:template": {"f:spec": {}}}});
        let label = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
        let ours = json!({"f:metadata": {"f:finalizers": {"v:\"example.com/installed\"": {}}}});
        let theirs = json!({"f:metadata": {"f:finalizers": {"v:\"example.com/other\"": {}}}});
        let before = [
            entry("gitops", "Apply", &spec),
            entry("bundle-webhook", "Update", &ours),
        ];
        let with = |more: Value| [&before[..], &[more]].concat();
        for (after, is_same) in [
            (before.to_vec(), true),
            // Entries for labels and for finalizers of other controllers are ignored.
            (with(entry("kubectl-label", "Update", &label)), true),
            (with(entry("argocd", "Apply", &label)), true),
            (with(entry("other", "Update", &theirs)), true),
            // Time and version of an entry are ignored.
            (
                vec![
                    {
                        let mut entry = before[0].clone();
                        entry["time"] = json!("2026-02-02T00:00:00Z");
                        entry
                    },
                    before[1].clone(),
                ],
                true,
            ),
            // A second owner keeps a field that its first owner removes.
            (with(entry("kubectl-edit", "Update", &config)), false),
            (with(entry("other", "Apply", &config)), false),
            // A second owner of the finalizer: the next apply of this owner removes the finalizer.
            (with(entry("other", "Apply", &ours)), false),
            // Entries or fields were removed from `managedFields`.
            (vec![before[1].clone()], false),
            (Vec::new(), false),
            (
                vec![entry("gitops", "Apply", &rest), before[1].clone()],
                false,
            ),
            // An entry of a subresource is a further owner.
            (
                with({
                    let mut entry = entry("other", "Update", &config);
                    entry["subresource"] = json!("status");
                    entry
                }),
                false,
            ),
        ] {
            assert_eq!(kept(&before, &after), is_same, "{after:?}");
        }
    }

    #[test]
    fn a_field_that_moves_to_an_apply_changes_the_ownership() {
        let both = |applied: &Value, updated: &Value| {
            [
                entry("gitops", "Apply", applied),
                entry("kubectl-patch", "Update", updated),
            ]
        };
        let (paused, both_fields) = (
            json!({"f:spec": {"f:paused": {}}}),
            json!({"f:spec": {"f:config": {}, "f:paused": {}}}),
        );
        let config = json!({"f:spec": {"f:config": {}}});
        let before = both(&config, &paused);
        assert!(!kept(&before, &both(&both_fields, &json!({}))));
        assert!(!kept(&before, &both(&both_fields, &paused)));
    }

    #[test]
    fn an_apply_that_moves_to_a_subresource_changes_the_ownership() {
        let applied = entry("gitops", "Apply", &json!({"f:spec": {"f:config": {}}}));
        let mut moved = applied.clone();
        moved["subresource"] = json!("status");
        let before = std::slice::from_ref(&applied);
        assert!(!kept(before, std::slice::from_ref(&moved)));
        assert!(!kept(before, &[applied.clone(), moved]));
    }

    #[test]
    fn only_labels_annotations_and_finalizers_are_free_in_every_entry() {
        let label = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
        let spec = json!({"f:spec": {"f:config": {}}});
        let status = json!({"f:status": {"f:phase": {}, "f:admission": {}}});
        let mut of_status = entry("bundle-webhook-status", "Apply", &status);
        of_status["subresource"] = json!("status");
        let before = [
            entry("gitops", "Apply", &spec),
            entry("kubectl-label", "Update", &label),
            of_status,
        ];
        let with = |index: usize, fields: Value| {
            let mut after = before.clone();
            after[index]["fieldsV1"] = fields;
            after
        };
        let with_metadata =
            |metadata: &Value| json!({"f:spec": {"f:config": {}}, "f:metadata": metadata});
        for metadata in [
            json!({"f:labels": {".": {}, "f:b": {}}}),
            json!({"f:annotations": {"f:c": {}}, "f:finalizers": {"v:\"example.com/other\"": {}}}),
        ] {
            assert!(
                kept(&before, &with(0, with_metadata(&metadata))),
                "{metadata}"
            );
        }
        assert!(kept(&before, &with(1, json!({}))));
        // The next apply of the entry would remove a field that an update must contain, or all
        // labels.
        for metadata in [
            json!({"f:resourceVersion": {}}),
            json!({"f:uid": {}}),
            json!({"f:labels": {}}),
            json!({"f:ownerReferences": {".": {}}}),
            json!({".": {}}),
            json!({}),
        ] {
            assert!(
                !kept(&before, &with(0, with_metadata(&metadata))),
                "{metadata}"
            );
            let set = json!({"f:metadata": metadata});
            assert!(!kept(&before, &with(1, set.clone())), "{metadata}");
            let new = [&before[..], &[entry("new", "Apply", &set)]].concat();
            assert!(!kept(&before, &new), "{metadata}");
        }
        // The next write of the status would remove a field of the status.
        for fields in [
            json!({"f:status": {"f:phase": {}}}),
            json!({"f:status": {"f:phase": {}, "f:admission": {}, "f:x": {}}}),
            json!({}),
        ] {
            assert!(!kept(&before, &with(2, fields.clone())), "{fields}");
        }
    }

    #[test]
    fn owners_of_the_spec_are_free_for_kinds_whose_spec_cannot_change() {
        let object = |fields: &Value| json!({"metadata": {"managedFields": [entry("ana", "Apply", fields)]}});
        let before = object(&json!({"f:spec": {"f:source": {}}}));
        let more = object(&json!({"f:spec": {"f:source": {}, "f:x": {}}}));
        let version =
            object(&json!({"f:metadata": {"f:resourceVersion": {}}, "f:spec": {"f:source": {}}}));
        for kind in [Kind::Bundle, Kind::BundleApproval] {
            assert!(is_kept(kind, &before, &more, FINALIZER));
            assert!(!is_kept(kind, &before, &version, FINALIZER));
        }
    }

    #[test]
    fn owners_of_the_proof_and_of_labels_for_tools_are_guarded() {
        let names = |field: &str, name: &str| json!({"f:metadata": {field: {name: {}}}});
        let proof = names("f:annotations", "f:core.rukpak.io/proof");
        let tool = names("f:labels", "f:helm.toolkit.fluxcd.io/name");
        let object = |fields: &[&Value]| {
            let entries = fields.iter();
            let entries = entries.map(|fields| entry("gitops", "Apply", fields));
            json!({"metadata": {"managedFields": entries.collect::<Vec<_>>()}})
        };
        for kind in Kind::ALL {
            let is_free = kind != Kind::BundleDeployment;
            for (fields, expected) in [(&proof, false), (&tool, is_free)] {
                let (none, owned) = (object(&[]), object(&[fields]));
                assert_eq!(is_kept(kind, &none, &owned, FINALIZER), expected, "{kind}");
                assert_eq!(is_kept(kind, &owned, &none, FINALIZER), expected, "{kind}");
            }
        }
    }

    /// Returns ten entries of updates that own labels.
    fn labels() -> Vec<Value> {
        let label = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
        let name = |number: usize| format!("label-{number}");
        (0..10)
            .map(|number| entry(&name(number), "Update", &label))
            .collect()
    }

    #[test]
    fn entry_that_clients_move_to_their_apply_changes_the_ownership() {
        let annotation = json!({"f:annotations": {format!("f:{LAST_APPLIED}"): {}}});
        let paused = json!({"f:spec": {"f:paused": {}}});
        let both = json!({"f:spec": {"f:paused": {}}, "f:metadata": annotation});
        let client = entry(
            "kubectl-client-side-apply",
            "Update",
            &json!({"f:metadata": annotation}),
        );
        let pause = entry("kubectl-bundle", "Update", &paused);
        let before = [&labels()[..], &[client.clone(), pause.clone()]].concat();
        assert!(kept(&before, &before));
        for after in [
            // The entry of the pause owns the annotation.
            vec![client.clone(), entry("kubectl-bundle", "Update", &both)],
            // The pause moves to the manager that owns the annotation.
            vec![entry("kubectl-client-side-apply", "Update", &both)],
            // A merge of the entry of the pause with the entry that owns the annotation.
            vec![entry(MERGED_MANAGER, "Update", &both)],
            vec![client.clone(), entry("kubectl", "Update", &paused)],
            // An entry without fields of the spec owns the annotation.
            vec![
                client.clone(),
                pause.clone(),
                entry("other", "Update", &json!({"f:metadata": annotation})),
            ],
            vec![pause],
        ] {
            assert!(!kept(&before, &after), "{after:?}");
        }
        let merged = entry(MERGED_MANAGER, "Update", &paused);
        assert!(kept(&before, &[client, merged]));
    }

    #[test]
    fn updates_that_the_api_server_merges_keep_the_ownership() {
        let (paused, config, more) = (
            json!({"f:spec": {"f:paused": {}, "f:drift": {"f:mode": {}}}}),
            json!({"f:spec": {"f:config": {}, "f:drift": {"f:ignore": {}}}}),
            json!({"f:spec": {"f:rollout": {}}}),
        );
        let merged = json!({"f:spec": {"f:paused": {}, "f:config": {}, "f:drift": {"f:mode": {}, "f:ignore": {}}}});
        let ancient = |fields: &Value| entry(MERGED_MANAGER, "Update", fields);
        let two = [
            entry("kubectl-patch", "Update", &paused),
            entry("kubectl-edit", "Update", &config),
        ];
        let before = [&labels()[..], &two].concat();
        assert!(kept(&before, &[ancient(&merged)]));
        // The API server does not merge two entries.
        assert!(!kept(&two, &[ancient(&merged)]));
        let other = entry("kubectl-replace", "Update", &more);
        let with_other = [&before[..], std::slice::from_ref(&other)].concat();
        assert!(kept(&with_other, &[ancient(&merged), other.clone()]));
        // A field is missing or added.
        assert!(!kept(&with_other, &[ancient(&paused), other.clone()]));
        assert!(!kept(&before, &[ancient(&merged), other]));
        // The API server owns a field and its members in one set with the member `.`.
        let (whole, member, both) = (
            json!({"f:spec": {"f:config": {}}}),
            json!({"f:spec": {"f:config": {"f:a": {}}}}),
            json!({"f:spec": {"f:config": {".": {}, "f:a": {}}}}),
        );
        for (one, two) in [(&whole, &member), (&member, &whole), (&both, &whole)] {
            let of_config = [entry("a", "Update", one), entry("b", "Update", two)];
            let before = [&labels()[..], &of_config].concat();
            assert!(kept(&before, &[ancient(&both)]));
            assert!(!kept(&before, &[ancient(&member)]));
        }
        // Further merges into the same entry.
        let edit = entry("kubectl-edit", "Update", &config);
        let before = [&labels()[..], &[ancient(&paused), edit]].concat();
        assert!(kept(&before, &[ancient(&merged)]));
        assert!(!kept(&before, &[ancient(&config)]));
    }
}
