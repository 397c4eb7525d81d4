//! Defaults, which the API server sets before validation.

use serde_json::Value;

use super::{flag, of_field};

/// Result of [`fill_within`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultsResult {
    /// All defaults are set.
    Complete,
    /// The defaults exceed the limit. Some defaults are not set.
    TooLarge,
}

/// Removes the nulls that the API server removes, and sets the defaults of missing fields.
pub(crate) fn fill(schema: &Value, value: &mut Value) {
    let mut left = usize::MAX;
    fill_within(schema, value, &mut left);
}

/// Like [`fill`], with at most `left` nodes in all defaults together. `left` decreases by the
/// number of nodes in each default. Without this limit, a long list of short objects could become
/// very large.
pub(crate) fn fill_within(schema: &Value, value: &mut Value, left: &mut usize) -> DefaultsResult {
    match value {
        Value::Object(map) => {
            let fields = schema.get("properties").and_then(Value::as_object);
            if let Some(fields) = fields {
                for (key, field) in fields {
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
                            if !spend(default, left) {
                                return DefaultsResult::TooLarge;
                            }
                            map.insert(key.clone(), default.clone());
                        }
                        None => drop(map.remove(key)),
                    }
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(field) = of_field(schema, key)
                    && fill_within(field, value, left) == DefaultsResult::TooLarge
                {
                    return DefaultsResult::TooLarge;
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for value in items {
                    if fill_within(schema, value, left) == DefaultsResult::TooLarge {
                        return DefaultsResult::TooLarge;
                    }
                }
            }
        }
        _ => {}
    }
    DefaultsResult::Complete
}

/// Subtracts the size of a default from `left`. Returns false if the size exceeds `left`.
fn spend(default: &Value, left: &mut usize) -> bool {
    let size = match default {
        Value::String(text) => text.len() / 64 + 1,
        _ => 1,
    };
    let Some(rest) = left.checked_sub(size) else {
        return false;
    };
    *left = rest;
    match default {
        Value::Array(items) => items.iter().all(|item| spend(item, left)),
        Value::Object(map) => map.iter().all(|(_, value)| spend(value, left)),
        _ => true,
    }
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
        let limit = &mut 5_000;
        assert_eq!(
            fill_within(&schema, &mut value, limit),
            DefaultsResult::TooLarge
        );
        let filled = value.as_array().unwrap().iter();
        assert_eq!(filled.filter(|item| item.get("a").is_some()).count(), 4);
    }
}
