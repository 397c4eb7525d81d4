//! Lists of type `set` and `map`: duplicate items or keys are rejected.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::path::Path;
use super::{Report, brief, of_field, text};

/// Keyword of the schema for the type of a list: `atomic`, `set` or `map`.
const LIST_TYPE: &str = "x-kubernetes-list-type";

pub(super) fn find<'v>(
    (schema, value): (&'v Value, &'v Value),
    path: &mut Path<'v>,
    report: &mut dyn Report,
) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(field) = of_field(schema, key) {
                    path.push_field(schema, key);
                    find((field, value), path, report);
                    path.pop();
                }
            }
        }
        Value::Array(items) => {
            match text(schema, LIST_TYPE) {
                Some("set") => twice(items.iter().cloned(), path, "the item", report),
                Some("map") => {
                    let keys: Vec<&str> = schema
                        .get("x-kubernetes-list-map-keys")
                        .and_then(Value::as_array)
                        .map(|keys| keys.iter().filter_map(Value::as_str).collect())
                        .unwrap_or_default();
                    let key = |value: &Value| -> Value {
                        let own = keys
                            .iter()
                            .filter_map(|key| Some(((*key).to_owned(), value.get(*key)?.clone())));
                        Value::Object(own.collect::<Map<_, _>>())
                    };
                    twice(items.iter().map(key), path, "an item with the key", report);
                }
                _ => {}
            }
            if let Some(schema) = schema.get("items") {
                for (index, value) in items.iter().enumerate() {
                    path.push_item(index);
                    find((schema, value), path, report);
                    path.pop();
                }
            }
        }
        _ => {}
    }
}

fn twice(
    values: impl Iterator<Item = Value>,
    path: &mut Path<'_>,
    what: &str,
    report: &mut dyn Report,
) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.enumerate() {
        if !seen.insert(value.to_string()) {
            path.push_item(index);
            let message = || format!("{what} {} appears twice", brief(&value));
            report.add(path, LIST_TYPE, false, &message);
            path.pop();
        }
    }
}
