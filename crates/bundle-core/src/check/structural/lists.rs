//! Lists of type `set` and `map`: duplicate items or keys are rejected.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Problem, brief, child, item, of_field, text};

pub(super) fn find(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(field) = of_field(schema, key) {
                    find(field, value, &child(path, key), problems);
                }
            }
        }
        Value::Array(items) => {
            match text(schema, "x-kubernetes-list-type") {
                Some("set") => twice(items.iter().cloned(), path, "the item", problems),
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
                    twice(
                        items.iter().map(key),
                        path,
                        "an item with the key",
                        problems,
                    );
                }
                _ => {}
            }
            if let Some(schema) = schema.get("items") {
                for (index, value) in items.iter().enumerate() {
                    find(schema, value, &item(path, index), problems);
                }
            }
        }
        _ => {}
    }
}

fn twice(values: impl Iterator<Item = Value>, path: &str, what: &str, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.enumerate() {
        if !seen.insert(value.to_string()) {
            problems.push(Problem::new(
                &item(path, index),
                format!("{what} {} appears twice", brief(&value)),
            ));
        }
    }
}
