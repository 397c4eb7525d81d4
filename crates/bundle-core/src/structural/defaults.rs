//! Defaults, which the API server sets before validation.

use serde_json::Value;

use super::{BudgetExceeded, ValidationBudget, flag, of_field};

/// Number of bytes of a text or key that count as one node.
const NODE_BYTES: usize = 64;

/// Reason why not all defaults are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultsError {
    /// The defaults have more nodes than the limit.
    TooLarge,
    /// The budget is exceeded.
    Budget(BudgetExceeded),
}

impl From<BudgetExceeded> for DefaultsError {
    fn from(exceeded: BudgetExceeded) -> Self {
        Self::Budget(exceeded)
    }
}

/// Removes the nulls that the API server removes, and sets the defaults of missing fields.
pub(crate) fn fill(schema: &Value, value: &mut Value) {
    let mut left = usize::MAX;
    let budget = &mut ValidationBudget::unlimited();
    // These limits are never exceeded.
    let _ = fill_within(schema, value, &mut left, budget);
}

/// Like [`fill`], with at most `left` nodes in all defaults together. `left` decreases by the
/// number of nodes in each default. Without this limit, a long list of short objects could become
/// very large. For each object, the budget is charged for all properties of the schema: otherwise a
/// long list of empty objects could need minutes, also without any default.
pub(crate) fn fill_within(
    schema: &Value,
    value: &mut Value,
    left: &mut usize,
    budget: &mut ValidationBudget<'_>,
) -> Result<(), DefaultsError> {
    match value {
        Value::Object(map) => {
            let fields = schema.get("properties").and_then(Value::as_object);
            for (key, field) in fields.into_iter().flatten() {
                budget.charge_iteration(key)?;
                let is_nothing = match map.get(key) {
                    None => true,
                    Some(Value::Null) => !flag(field, "nullable"),
                    Some(_) => false,
                };
                if !is_nothing {
                    continue;
                }
                // Some servers return `default: null`, which means no default.
                match field.get("default").filter(|value| !value.is_null()) {
                    Some(default) => {
                        let before = *left;
                        if !(spend_key(key, left) && spend(default, left)) {
                            return Err(DefaultsError::TooLarge);
                        }
                        budget.charge_steps(before - *left)?;
                        map.insert(key.clone(), default.clone());
                    }
                    None => drop(map.remove(key)),
                }
            }
            for (key, value) in map.iter_mut() {
                budget.charge_iteration(key)?;
                if let Some(field) = of_field(schema, key) {
                    fill_within(field, value, left, budget)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for value in items {
                    budget.charge_iteration("")?;
                    fill_within(schema, value, left, budget)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Subtracts the size of a default from `left`. Returns false if the size exceeds `left`.
fn spend(default: &Value, left: &mut usize) -> bool {
    let size = match default {
        Value::String(text) => text.len() / NODE_BYTES + 1,
        _ => 1,
    };
    if !subtract(size, left) {
        return false;
    }
    match default {
        Value::Array(items) => items.iter().all(|item| spend(item, left)),
        Value::Object(map) => map
            .iter()
            .all(|(key, value)| spend_key(key, left) && spend(value, left)),
        _ => true,
    }
}

/// Subtracts the size of a key from `left`. A short key is part of the node of its value.
fn spend_key(key: &str, left: &mut usize) -> bool {
    subtract(key.len() / NODE_BYTES, left)
}

/// Subtracts `size` from `left`. Returns false if `size` exceeds `left`.
fn subtract(size: usize, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(size) else {
        return false;
    };
    *left = rest;
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_defaults_like_the_api_server() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "integer", "default": 1},
            "b": {"type": "string"},
            "c": {"type": "string", "nullable": true, "default": "x"},
            "d": {"type": "object", "default": {}, "properties": {"e": {"type": "integer", "default": 2}}},
            "f": {"type": "array", "items": {"type": "object", "properties": {"g": {"type": "boolean", "default": true}}}},
            "h": {"type": "object", "additionalProperties": {"type": "object", "properties": {"i": {"type": "integer", "default": 3}}}},
        }});
        let mut value =
            json!({"a": null, "b": null, "c": null, "f": [{}, {"g": false}], "h": {"x": {}}});
        fill(&schema, &mut value);
        assert_eq!(
            value,
            json!({"a": 1, "c": null, "d": {"e": 2}, "f": [{"g": true}, {"g": false}], "h": {"x": {"i": 3}}})
        );
    }

    #[test]
    fn large_defaults_of_many_items_are_limited() {
        let default = vec!["x"; 1000];
        let schema = json!({"items": {"properties": {"a": {"default": default}}}});
        let mut value = json!(vec![json!({}); 100]);
        assert_eq!(
            filled(&schema, &mut value, 5_000),
            Err(DefaultsError::TooLarge)
        );
        let filled = value.as_array().unwrap().iter();
        assert_eq!(filled.filter(|item| item.get("a").is_some()).count(), 4);
    }

    /// Without the limit, this test would look up 30 billion properties.
    #[test]
    fn properties_of_many_empty_objects_are_limited() {
        let properties = |count: usize| -> Value {
            let all = (0..count).map(|number| (format!("p{number}"), json!({"type": "string"})));
            all.collect::<serde_json::Map<_, _>>().into()
        };
        let schema = json!({"items": {"properties": properties(100_000)}});
        let mut value = json!(vec![json!({}); 300_000]);
        let result = filled(&schema, &mut value, 100_000);
        assert_eq!(result, Err(DefaultsError::Budget(BudgetExceeded)));
        // Properties without a default are no nodes of defaults.
        let schema = json!({"items": {"properties": properties(60)}});
        let mut value = json!(vec![json!({}); 1_000]);
        assert_eq!(filled(&schema, &mut value, 0), Ok(()));
    }

    /// Without the limit, this test would need 6 GB of memory.
    #[test]
    fn long_keys_of_defaults_count_as_several_nodes() {
        let long = "x".repeat(64_000);
        for fields in [
            json!({"a": {"default": {long.as_str(): 1}}}),
            json!({long.as_str(): {"default": 1}}),
        ] {
            let schema = json!({"items": {"properties": fields}});
            let mut value = json!(vec![json!({}); 100_000]);
            assert_eq!(
                filled(&schema, &mut value, 5_000),
                Err(DefaultsError::TooLarge)
            );
            assert_eq!(filled(&schema, &mut json!([{}]), 5_000), Ok(()));
        }
    }

    /// Sets defaults with at most `left` nodes, and with a small budget.
    fn filled(schema: &Value, value: &mut Value, mut left: usize) -> Result<(), DefaultsError> {
        let budget = &mut ValidationBudget::without_deadline(100_000);
        fill_within(schema, value, &mut left, budget)
    }
}
