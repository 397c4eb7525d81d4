//! Changes of an operator's Deployments by `deploymentConfig`, with the rules of the Operator
//! Lifecycle Manager.

use std::collections::HashMap;

use serde_json::{Map, Value, json, map::Entry};

use super::additions::Additions;
use crate::format::registry::csv::Deployment;

/// Fields of `affinity`. Each field in the configuration replaces the field of the same name in the
/// Deployment.
const AFFINITIES: [&str; 3] = ["nodeAffinity", "podAffinity", "podAntiAffinity"];

/// Returns the value that identifies an entry of a list, such as its name. A new entry replaces the
/// entry with the same value.
type Identity = fn(&Value) -> &Value;

/// Writes `config` into the pod template of a Deployment:
///
/// | Field | Rule |
/// |---|---|
/// | `env` | for each container; replaces a variable of the same name |
/// | `envFrom`, `tolerations` | added, unless an equal entry exists |
/// | `volumes` | added; replaces a volume of the same name |
/// | `volumeMounts` | for each container; replaces a mount of the same path |
/// | `resources` | for each container; replaces all resources |
/// | `nodeSelector` | replaces the selector |
/// | `affinity` | each of its three fields replaces the field of the same name |
/// | `annotations` | added to Deployment and pods; existing annotations are kept |
pub(in crate::format::registry) fn apply(
    config: &Map<String, Value>,
    deployment: &mut Deployment,
    additions: &mut Additions,
) {
    if config.is_empty() {
        return;
    }
    if let Some(pod) = map_at(&mut deployment.spec, &["template", "spec"]) {
        apply_to_pod(config, pod, additions);
    }
    let Some(annotations) = config.get("annotations").and_then(Value::as_object) else {
        return;
    };
    let path = ["template", "metadata", "annotations"];
    if let Some(pod) = map_at(&mut deployment.spec, &path) {
        for (key, value) in annotations {
            if !pod.contains_key(key) {
                pod.insert(key.clone(), additions.copy(value));
            }
        }
    }
    for (key, value) in annotations {
        let value = additions.copy(value);
        deployment.annotations.insert(key.clone(), value);
    }
}

fn apply_to_pod(
    config: &Map<String, Value>,
    pod: &mut Map<String, Value>,
    additions: &mut Additions,
) {
    let list = |key: &str| config.get(key).and_then(Value::as_array);
    for (key, identity) in [("volumes", name as Identity), ("tolerations", whole)] {
        if let Some(values) = list(key) {
            replace_or_add(pod.entry(key), values, identity, additions);
        }
    }
    if let Some(selector) = config.get("nodeSelector") {
        pod.insert("nodeSelector".to_owned(), additions.copy(selector));
    }
    if let Some(affinity) = config.get("affinity")
        && let Some(own) = as_map(pod.entry("affinity").or_insert(Value::Null))
    {
        for part in AFFINITIES {
            if let Some(value) = affinity.get(part) {
                own.insert(part.to_owned(), additions.copy(value));
            }
        }
    }
    let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter_map(as_map) {
        // Above this limit the conversion fails. Without this check, each of many containers would
        // need time for each value.
        if additions.exceed_limit() {
            return;
        }
        for (key, identity) in [
            ("env", name as Identity),
            ("envFrom", whole),
            ("volumeMounts", mount_path),
        ] {
            if let Some(values) = list(key) {
                replace_or_add(container.entry(key), values, identity, additions);
            }
        }
        if let Some(resources) = config.get("resources") {
            container.insert("resources".to_owned(), additions.copy(resources));
        }
    }
}

fn name(entry: &Value) -> &Value {
    &entry["name"]
}

fn mount_path(entry: &Value) -> &Value {
    &entry["mountPath"]
}

fn whole(entry: &Value) -> &Value {
    entry
}

/// Returns the map at `value`. Null becomes an empty map.
fn as_map(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Returns the map at `path`, and adds missing maps. Returns `None` if a value of the path is not a
/// map.
pub(super) fn map_at<'a>(
    value: &'a mut Value,
    path: &[&str],
) -> Option<&'a mut Map<String, Value>> {
    path.iter().try_fold(as_map(value)?, |map, key| {
        as_map(map.entry(*key).or_insert(Value::Null))
    })
}

/// Adds `values` to the list of `entry`. A value replaces the first existing value with the same
/// identity.
fn replace_or_add(
    entry: Entry<'_>,
    values: &[Value],
    identity: Identity,
    additions: &mut Additions,
) {
    let Value::Array(own) = entry.or_insert_with(|| json!([])) else {
        return;
    };
    // For each identity: the index of the first value in the list with this identity; `None` if the
    // list has no such value.
    let mut places: HashMap<&Value, Option<usize>> = HashMap::new();
    places.extend(values.iter().map(|value| (identity(value), None)));
    for (number, value) in own.iter().enumerate() {
        if let Some(place) = places.get_mut::<Value>(identity(value)) {
            place.get_or_insert(number);
        }
    }
    for value in values {
        let copy = additions.copy(value);
        // Above this limit the conversion fails, so the remaining values are not needed.
        if additions.exceed_limit() {
            return;
        }
        let place = places.entry(identity(value)).or_default();
        if let Some(own) = place.and_then(|number| own.get_mut(number)) {
            *own = copy;
        } else {
            *place = Some(own.len());
            own.push(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_replaces_the_first_one_with_its_name() {
        let mut object = Map::new();
        object.insert(
            "env".to_owned(),
            json!([{"name": "a"}, {"name": "b"}, {"name": "a", "value": "2"}]),
        );
        let values = [
            json!({"name": "a", "value": "3"}),
            json!({"name": "c"}),
            json!({"name": "c", "value": "4"}),
        ];
        let mut additions = Additions::default();
        replace_or_add(object.entry("env"), &values, name, &mut additions);
        assert_eq!(
            object["env"],
            json!([
                {"name": "a", "value": "3"},
                {"name": "b"},
                {"name": "a", "value": "2"},
                {"name": "c", "value": "4"},
            ])
        );
    }

    /// Without the check of the limit for each container, this test would hash 500 million values.
    #[test]
    fn containers_above_the_limit_need_no_time_for_each_value() {
        let env = (0..5_000).map(|number| json!({ "name": format!("v{number}") }));
        let config = json!({ "env": env.collect::<Vec<_>>() });
        let config = config.as_object().unwrap();
        let containers = vec![json!({}); 100_000];
        let mut deployment = Deployment {
            spec: json!({"template": {"spec": {"containers": containers}}}),
            ..Deployment::default()
        };
        let mut additions = Additions::default();
        apply(config, &mut deployment, &mut additions);
        assert!(additions.exceed_limit());
        let containers = &deployment.spec["template"]["spec"]["containers"];
        assert_eq!(containers[99_999], json!({}));
    }

    #[test]
    fn nothing_is_added_above_the_limit() {
        let mut object = Map::new();
        let mut additions = Additions::default();
        additions.add(u64::MAX / 2);
        replace_or_add(object.entry("env"), &[json!({})], whole, &mut additions);
        assert_eq!(object["env"], json!([]));
    }
}
