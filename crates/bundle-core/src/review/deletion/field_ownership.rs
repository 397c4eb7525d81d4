//! Ownership of fields in `metadata.managedFields`, which decides what a later server-side apply
//! removes. A user who changes this ownership can change the spec through the next apply of another
//! user:
//! - A field with a second owner stays, although its first owner no longer sets the field.
//! - A field that was added to the field set of an apply is removed by the next apply that does not
//!   set the field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Ownership of the spec and of one finalizer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FieldOwnership {
    /// Field sets of server-side applies, by manager. Each set decides what the next apply of its
    /// manager removes.
    applied: BTreeMap<String, Value>,
    /// All fields that the managers of other writes own. The API server merges the entries of old
    /// managers. Therefore the managers are not compared one by one.
    updated: Value,
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
            if entry["operation"] == "Apply" {
                let manager = entry["manager"].as_str().unwrap_or_default();
                let set = ownership.applied.entry(manager.to_owned()).or_default();
                merge(set, &owned);
            } else {
                merge(&mut ownership.updated, &owned);
            }
        }
        ownership
    }
}

/// Returns the spec and the finalizer in a field set, without all other fields; `Null` if the set
/// contains neither.
fn guarded_fields(fields: &Value, finalizer: &str) -> Value {
    let mut guarded = Map::new();
    if let Some(spec) = fields.get("f:spec") {
        guarded.insert("f:spec".to_owned(), spec.clone());
    }
    // In `fieldsV1`, the key of a finalizer is `v:` and the finalizer as JSON.
    let element = format!("v:{}", Value::from(finalizer));
    if fields["f:metadata"]["f:finalizers"].get(&element).is_some() {
        guarded.insert(element, Value::Null);
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
            // The subresource of an entry is ignored.
            (
                with({
                    let mut entry = entry("other", "Update", &config);
                    entry["subresource"] = json!("status");
                    entry
                }),
                false,
            ),
        ] {
            assert_eq!(of(&after) == of(&before), is_same, "{after:?}");
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
    fn managers_of_updates_that_the_api_server_merges_are_the_same_ownership() {
        let (paused, config) = (
            json!({"f:spec": {"f:paused": {}, "f:drift": {"f:mode": {}}}}),
            json!({"f:spec": {"f:config": {}, "f:drift": {"f:ignore": {}}}}),
        );
        let merged = json!({"f:spec": {"f:paused": {}, "f:config": {}, "f:drift": {"f:mode": {}, "f:ignore": {}}}});
        let single = of(&[
            entry("kubectl-patch", "Update", &paused),
            entry("kubectl-edit", "Update", &config),
        ]);
        assert_eq!(single, of(&[entry("ancient-changes", "Update", &merged)]));
    }
}
