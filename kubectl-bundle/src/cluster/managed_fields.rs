//! Fields of an object that one field manager applied, read from `managedFields`, like client-go's
//! `Extract…` functions.

use serde_json::{Map, Value};

/// Returns the fields of `spec` that `manager` owns by server-side apply; `None` if `manager` owns
/// no field of `spec`.
///
/// If an apply omits a field that its field manager owns, the API server removes the field.
/// Therefore a change of one field must send all other owned fields again.
pub(crate) fn spec(object: &Value, manager: &str) -> Option<Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let entry = entries.iter().find(|entry| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    })?;
    Some(select_owned_fields(
        object.get("spec")?,
        entry["fieldsV1"].get("f:spec")?,
    ))
}

/// Returns the fields of `value` that a `fieldsV1` set contains. An empty set means the whole
/// value.
fn select_owned_fields(value: &Value, fields: &Value) -> Value {
    let members = fields.as_object();
    if members.is_none_or(Map::is_empty) {
        return value.clone();
    }
    let members = members.into_iter().flatten();
    match value {
        Value::Object(map) => members
            .filter_map(|(path, fields)| {
                let name = path.strip_prefix("f:")?;
                Some((name.to_owned(), select_owned_fields(map.get(name)?, fields)))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => {
            let members: Vec<_> = members.collect();
            items
                .iter()
                .filter_map(|item| {
                    let mut named = members.iter().filter(|(path, _)| is_item(item, path));
                    named
                        .next()
                        .map(|(path, fields)| select_owned_fields_of_item(item, path, fields))
                })
                .collect::<Vec<_>>()
                .into()
        }
        other => other.clone(),
    }
}

/// Returns `true` if `path`, a member of a `fieldsV1` set, selects this list item. `k:{…}` selects
/// an item by its keys, and `v:…` by its whole value.
fn is_item(item: &Value, path: &str) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    if let Some(value) = path.strip_prefix("v:") {
        return parse(value).as_ref() == Some(item);
    }
    let Some(Value::Object(keys)) = path.strip_prefix("k:").and_then(parse) else {
        return false;
    };
    keys.iter().all(|(key, value)| item.get(key) == Some(value))
}

/// Returns the owned fields of a list item, together with the keys that identify the item.
fn select_owned_fields_of_item(item: &Value, path: &str, fields: &Value) -> Value {
    let mut part = select_owned_fields(item, fields);
    let keys = path
        .strip_prefix("k:")
        .and_then(|keys| serde_json::from_str::<Map<String, Value>>(keys).ok());
    if let (Some(part), Some(keys)) = (part.as_object_mut(), keys) {
        part.extend(keys);
    }
    part
}

/// Returns the fields that differ, sorted by path. Each field has one line: `spec.paused: unset ->
/// true`.
pub(crate) fn differences(path: &str, before: &Value, after: &Value) -> Vec<String> {
    if before == after {
        return Vec::new();
    }
    let empty = Map::new();
    match (before, after) {
        (Value::Object(_) | Value::Null, Value::Object(_)) | (Value::Object(_), Value::Null) => {
            let (before, after) = (
                before.as_object().unwrap_or(&empty),
                after.as_object().unwrap_or(&empty),
            );
            let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
            names
                .into_iter()
                .flat_map(|name| {
                    let get = |map: &Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                    differences(&format!("{path}.{name}"), &get(before), &get(after))
                })
                .collect()
        }
        _ => vec![format!(
            "{path}: {} -> {}",
            display_value(before),
            display_value(after)
        )],
    }
}

fn display_value(value: &Value) -> String {
    match value {
        Value::Null => "unset".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extracts_only_fields_applied_by_the_manager() {
        let object = json!({
            "metadata": {"managedFields": [
                {"manager": "kubectl-bundle", "operation": "Update", "fieldsV1": {"f:spec": {"f:config": {}}}},
                {"manager": "kubectl-bundle", "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:annotations": {"f:x": {}}},
                    "f:spec": {
                        "f:collision": {},
                        "f:template": {".": {}, "f:spec": {"f:provisionerClassName": {}}},
                        "f:gone": {},
                        "f:drift": {"f:ignore": {"k:{\"kind\":\"A\"}": {"f:fields": {}}}},
                        "f:names": {"v:\"one\"": {}},
                    },
                }},
            ]},
            "spec": {
                "collision": "Adopt",
                "paused": true,
                "config": {"a": 1},
                "template": {"spec": {"provisionerClassName": "c", "source": {"type": "git"}}},
                "drift": {"mode": "Report", "ignore": [{"kind": "A", "fields": [1], "name": "n"}, {"kind": "B"}]},
                "names": ["one", "two"],
            },
        });
        assert_eq!(
            spec(&object, "kubectl-bundle").unwrap(),
            json!({
                "collision": "Adopt",
                "template": {"spec": {"provisionerClassName": "c"}},
                "drift": {"ignore": [{"kind": "A", "fields": [1]}]},
                "names": ["one"],
            })
        );
        assert_eq!(spec(&object, "helm"), None);
    }

    #[test]
    fn names_each_field_that_differs() {
        assert_eq!(
            differences(
                "spec",
                &json!({"a": {"b": "x"}, "c": [1], "same": 1}),
                &json!({"a": {"b": "y", "n": true}, "same": 1}),
            ),
            [
                "spec.a.b: x -> y",
                "spec.a.n: unset -> true",
                "spec.c: [1] -> unset"
            ]
        );
    }
}
