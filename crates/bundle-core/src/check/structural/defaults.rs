//! Defaults, which the API server sets before validation.

use serde_json::Value;

use super::{flag, of_field};

/// Removes nulls where the API server does, and sets the defaults of missing fields.
pub(in super::super) fn fill(schema: &Value, value: &mut Value) {
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
                        Some(default) => drop(map.insert(key.clone(), default.clone())),
                        None => drop(map.remove(key)),
                    }
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(field) = of_field(schema, key) {
                    fill(field, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for value in items {
                    fill(schema, value);
                }
            }
        }
        _ => {}
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
}
