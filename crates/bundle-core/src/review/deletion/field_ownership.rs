//! Ownership of fields in `metadata.managedFields`, which decides what a later server-side apply
//! removes. A user who changes this ownership can change the spec through the next apply of another
//! user:
//! - A field with a second owner stays, although its first owner no longer sets the field.
//! - A field that was added to the field set of an apply is removed by the next apply that does not
//!   set the field.
//! - Some clients move the field set of another write to the field set of their apply, so that their
//!   next apply removes its fields. `kubectl` does this if the set owns its annotation
//!   ([`LAST_APPLIED`]).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::LAST_APPLIED;

/// Manager with which the API server replaces old managers of updates
/// (`k8s.io/apimachinery/pkg/util/managedfields/internal/capmanagers.go`).
const MERGED_MANAGER: &str = "ancient-changes";

/// Manager and subresource of an entry. The API server and the next apply identify an entry by
/// these values and by its operation.
type Manager = (String, String);

/// Ownership of the spec, of one finalizer, of the owner references and of the annotation of
/// `kubectl apply`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FieldOwnership {
    /// Field sets of server-side applies. Each set decides what the next apply of its manager
    /// removes.
    applied: BTreeMap<Manager, Value>,
    /// Field sets of other writes. `kubectl apply --server-side` moves each of these sets that owns
    /// the annotation [`LAST_APPLIED`] to the set of its apply. Other clients do the same with sets
    /// of some managers.
    updated: BTreeMap<Manager, Value>,
}

impl FieldOwnership {
    /// Reads the ownership from `object`.
    pub(super) fn of(object: &Value, finalizer: &str) -> Self {
        let mut ownership = Self::default();
        let entries = object["metadata"]["managedFields"].as_array();
        for entry in entries.into_iter().flatten() {
            let owned = guarded_fields(&entry["fieldsV1"], finalizer);
            if owned.is_null() {
                continue;
            }
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let sets = if entry["operation"] == "Apply" {
                &mut ownership.applied
            } else {
                &mut ownership.updated
            };
            let set = sets.entry((text("manager"), text("subresource")));
            merge(set.or_default(), &owned);
        }
        ownership
    }

    /// Returns true if an update to `new` changes no ownership. The update may merge entries of
    /// updates into one entry of [`MERGED_MANAGER`], as the API server does when an object has more
    /// than ten of them. Then no merged entry may own the annotation [`LAST_APPLIED`].
    pub(super) fn is_kept_by(&self, new: &Self) -> bool {
        self.applied == new.applied
            && (self.updated == new.updated || self.merged_for(new).as_ref() == Some(&new.updated))
    }

    /// Returns the field sets of updates after a merge of all entries that are missing in `new`.
    /// Returns `None` if one of these entries owns the annotation [`LAST_APPLIED`].
    fn merged_for(&self, new: &Self) -> Option<BTreeMap<Manager, Value>> {
        let merged_manager = (MERGED_MANAGER.to_owned(), String::new());
        let mut kept = BTreeMap::new();
        let mut merged = Value::Null;
        for (manager, fields) in &self.updated {
            if *manager != merged_manager && new.updated.contains_key(manager) {
                kept.insert(manager.clone(), fields.clone());
            } else {
                merge(&mut merged, fields);
            }
        }
        if merged.get(LAST_APPLIED).is_some() {
            return None;
        }
        if !merged.is_null() {
            kept.insert(merged_manager, merged);
        }
        Some(kept)
    }
}

/// Returns the guarded fields of a field set, without all other fields; `Null` if the set contains
/// none of them.
fn guarded_fields(fields: &Value, finalizer: &str) -> Value {
    let mut guarded = Map::new();
    if let Some(spec) = fields.get("f:spec") {
        guarded.insert("f:spec".to_owned(), spec.clone());
    }
    let metadata = &fields["f:metadata"];
    if let Some(owners) = metadata.get("f:ownerReferences") {
        guarded.insert("f:ownerReferences".to_owned(), owners.clone());
    }
    // In `fieldsV1`, the key of a finalizer is `v:` and the finalizer as JSON.
    let element = format!("v:{}", Value::from(finalizer));
    if metadata["f:finalizers"].get(&element).is_some() {
        guarded.insert(element, Value::Null);
    }
    let annotation = format!("f:{LAST_APPLIED}");
    if metadata["f:annotations"].get(&annotation).is_some() {
        guarded.insert(LAST_APPLIED.to_owned(), Value::Null);
    }
    if guarded.is_empty() {
        Value::Null
    } else {
        Value::Object(guarded)
    }
}

/// Adds the fields of `more` to `set`.
fn merge(set: &mut Value, more: &Value) {
    match (&mut *set, more) {
        (Value::Object(set), Value::Object(more)) => {
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

    fn of(entries: &[Value]) -> FieldOwnership {
        let object = json!({"metadata": {"managedFields": entries}});
        FieldOwnership::of(&object, FINALIZER)
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
            assert_eq!(of(&before).is_kept_by(&of(&after)), is_same, "{after:?}");
        }
    }

    #[test]
    fn a_field_that_moves_to_an_apply_changes_the_ownership() {
        let both = |applied: &Value, updated: &Value| {
            of(&[
                entry("gitops", "Apply", applied),
                entry("kubectl-patch", "Update", updated),
            ])
        };
        let (paused, both_fields) = (
            json!({"f:spec": {"f:paused": {}}}),
            json!({"f:spec": {"f:config": {}, "f:paused": {}}}),
        );
        let config = json!({"f:spec": {"f:config": {}}});
        assert_ne!(both(&config, &paused), both(&both_fields, &json!({})));
        assert_ne!(both(&config, &paused), both(&both_fields, &paused));
    }

    #[test]
    fn an_apply_that_moves_to_a_subresource_changes_the_ownership() {
        let config = json!({"f:spec": {"f:config": {}}});
        let applied = entry("gitops", "Apply", &config);
        let mut moved = applied.clone();
        moved["subresource"] = json!("status");
        let before = of(std::slice::from_ref(&applied));
        assert!(!before.is_kept_by(&of(std::slice::from_ref(&moved))));
        assert!(!before.is_kept_by(&of(&[applied, moved])));
    }

    #[test]
    fn entry_that_clients_move_to_their_apply_changes_the_ownership() {
        let annotation = json!({
            "f:annotations": {format!("f:{LAST_APPLIED}"): {}},
        });
        let paused = json!({"f:spec": {"f:paused": {}}});
        let both = json!({"f:spec": {"f:paused": {}}, "f:metadata": annotation});
        let client = entry(
            "kubectl-client-side-apply",
            "Update",
            &json!({"f:metadata": annotation}),
        );
        let pause = entry("kubectl-bundle", "Update", &paused);
        let before = of(&[client.clone(), pause.clone()]);
        assert!(before.is_kept_by(&before));
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
            vec![pause.clone()],
        ] {
            assert!(!before.is_kept_by(&of(&after)), "{after:?}");
        }
        let merged = entry(MERGED_MANAGER, "Update", &paused);
        assert!(before.is_kept_by(&of(&[client, merged])));
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
        let before = [
            entry("kubectl-patch", "Update", &paused),
            entry("kubectl-edit", "Update", &config),
        ];
        assert!(of(&before).is_kept_by(&of(&[ancient(&merged)])));
        let other = entry("kubectl-replace", "Update", &more);
        let before = [&before[..], std::slice::from_ref(&other)].concat();
        assert!(of(&before).is_kept_by(&of(&[ancient(&merged), other.clone()])));
        // A field is missing or added.
        assert!(!of(&before).is_kept_by(&of(&[ancient(&paused), other.clone()])));
        assert!(!of(&before[..2]).is_kept_by(&of(&[ancient(&merged), other])));
        // Further merges into the same entry.
        let before = [ancient(&paused), entry("kubectl-edit", "Update", &config)];
        assert!(of(&before).is_kept_by(&of(&[ancient(&merged)])));
        assert!(!of(&before).is_kept_by(&of(&[ancient(&config)])));
    }
}
