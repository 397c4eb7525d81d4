//! Unknown fields. The API server drops unknown fields silently, unless field validation is strict.

use serde_json::Value;

use super::{BudgetExceeded, Problem, ValidationBudget, child, flag, item};
use crate::package::nearest;

/// Names of the fields of `metadata`.
const META: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Fields that every object has, even if the schema does not specify them.
const IMPLIED: &[&str] = &["apiVersion", "kind", "metadata"];

/// Adds a problem for each unknown field of `value`. `is_resource_root` is true for a complete
/// object, which has `apiVersion`, `kind` and `metadata`.
pub(crate) fn find(
    schema: &Value,
    value: &Value,
    path: &str,
    is_resource_root: bool,
    problems: &mut Vec<Problem>,
) {
    let is_resource_root = is_resource_root || flag(schema, "x-kubernetes-embedded-resource");
    match value {
        Value::Object(map) => {
            let fields = schema.get("properties").and_then(Value::as_object);
            let others = schema.get("additionalProperties");
            let keeps = flag(schema, "x-kubernetes-preserve-unknown-fields");
            for (key, value) in map {
                let at = child(path, key);
                if is_resource_root && key == "metadata" {
                    meta(value, &at, problems);
                    continue;
                }
                if let Some(field) = fields.and_then(|fields| fields.get(key)) {
                    find(field, value, &at, false, problems);
                } else if let Some(others @ Value::Object(_)) = others {
                    find(others, value, &at, false, problems);
                } else if keeps
                    || others == Some(&Value::Bool(true))
                    || (is_resource_root && IMPLIED.contains(&key.as_str()))
                {
                    // The API server keeps this unknown field.
                } else {
                    let known: Vec<&str> = fields
                        .into_iter()
                        .flat_map(|fields| fields.keys().map(String::as_str))
                        .collect();
                    problems.push(unknown(&at, key, &known));
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else {
                return;
            };
            for (index, value) in items.iter().enumerate() {
                find(schema, value, &item(path, index), false, problems);
            }
        }
        _ => {}
    }
}

fn meta(value: &Value, path: &str, problems: &mut Vec<Problem>) {
    for key in value.as_object().into_iter().flat_map(|map| map.keys()) {
        if !META.contains(&key.as_str()) {
            problems.push(unknown(&child(path, key), key, META));
        }
    }
}

fn unknown(path: &str, key: &str, known: &[&str]) -> Problem {
    let meant = nearest(key, known)
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default();
    Problem::new(path, format!("unknown field{meant}"))
}

/// Removes fields that the schema does not specify. `is_resource_root` is true for a complete
/// object, which keeps `apiVersion`, `kind` and `metadata`.
pub(crate) fn prune(schema: &Value, value: &mut Value, is_resource_root: bool) {
    let budget = &mut ValidationBudget::unlimited();
    // This budget is never exceeded.
    let _ = prune_within(schema, value, is_resource_root, budget);
}

/// Like [`prune`], within a budget. After an error, some unknown fields are not removed.
pub(crate) fn prune_within(
    schema: &Value,
    value: &mut Value,
    is_resource_root: bool,
    budget: &mut ValidationBudget<'_>,
) -> Result<(), BudgetExceeded> {
    let is_resource_root = is_resource_root || flag(schema, "x-kubernetes-embedded-resource");
    match value {
        Value::Object(map) => {
            let fields = schema.get("properties").and_then(Value::as_object);
            let others = schema.get("additionalProperties");
            let keeps = flag(schema, "x-kubernetes-preserve-unknown-fields");
            let mut pruned = Ok(());
            map.retain(|key, value| {
                if pruned.is_ok() {
                    pruned = budget.charge_iteration(key);
                }
                if pruned.is_err() || (is_resource_root && IMPLIED.contains(&key.as_str())) {
                    return true;
                }
                if let Some(field) = fields.and_then(|fields| fields.get(key)) {
                    pruned = prune_within(field, value, false, budget);
                    return true;
                }
                if let Some(others @ Value::Object(_)) = others {
                    pruned = prune_within(others, value, false, budget);
                    return true;
                }
                keeps || others == Some(&Value::Bool(true))
            });
            pruned
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for value in items {
                    budget.charge_iteration("")?;
                    prune_within(schema, value, false, budget)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
