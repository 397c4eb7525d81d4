//! Changes of an operator's Deployments by `deploymentConfig`, with the rules of the Operator
//! Lifecycle Manager.

use serde_json::{Map, Value, json, map::Entry};

use super::additions::Additions;
use crate::format::registry::csv::Deployment;

/// Parts of an affinity. Each one replaces that of the Deployment.
const AFFINITIES: [&str; 3] = ["nodeAffinity", "podAffinity", "podAntiAffinity"];

/// Returns `true` for an entry that a new one replaces.
type IsSame = fn(&Value, &Value) -> bool;

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
/// | `affinity` | each of its three parts replaces that of the Deployment |
/// | `annotations` | added to Deployment and pods; existing ones stay |
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
    for (key, is_same) in [("volumes", same_name as IsSame), ("tolerations", is_equal)] {
        if let Some(values) = list(key) {
            replace_or_add(pod.entry(key), values, is_same, additions);
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
        for (key, is_same) in [
            ("env", same_name as IsSame),
            ("envFrom", is_equal),
            ("volumeMounts", same_path),
        ] {
            if let Some(values) = list(key) {
                replace_or_add(container.entry(key), values, is_same, additions);
            }
        }
        if let Some(resources) = config.get("resources") {
            container.insert("resources".to_owned(), additions.copy(resources));
        }
    }
}

fn same_name(one: &Value, other: &Value) -> bool {
    one["name"] == other["name"]
}

fn same_path(one: &Value, other: &Value) -> bool {
    one["mountPath"] == other["mountPath"]
}

fn is_equal(one: &Value, other: &Value) -> bool {
    one == other
}

/// Returns the map at `value`. Null becomes an empty map.
fn as_map(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Returns the map at `path`. Missing maps are added. `None` if a value of the path is not a map.
pub(super) fn map_at<'a>(
    value: &'a mut Value,
    path: &[&str],
) -> Option<&'a mut Map<String, Value>> {
    path.iter().try_fold(as_map(value)?, |map, key| {
        as_map(map.entry(*key).or_insert(Value::Null))
    })
}

/// Adds `values` to the list of `entry`. A value replaces the one that is the same.
fn replace_or_add(entry: Entry<'_>, values: &[Value], is_same: IsSame, additions: &mut Additions) {
    let Value::Array(own) = entry.or_insert_with(|| json!([])) else {
        return;
    };
    for value in values {
        let value = additions.copy(value);
        match own.iter_mut().find(|own| is_same(own, &value)) {
            Some(own) => *own = value,
            None => own.push(value),
        }
    }
}
