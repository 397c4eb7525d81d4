//! Objects of each revision of a soak package. The test compares the cluster with these objects
//! after all actors have stopped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Number of revisions of each package.
pub(super) const REVISIONS: u32 = 4;
/// Maximum number of ConfigMaps of a package. Each revision omits some of these ConfigMaps.
const CONFIG_MAPS: u32 = 10;

/// Package of the soak test. The BundleDeployment and the namespace have the name of the package.
#[derive(Debug, Clone)]
pub(super) struct Package {
    /// Name of the package, its BundleDeployment and its namespace.
    pub(super) name: String,
    /// Pinned references of the revisions of the package.
    pub(super) references: Vec<String>,
}

/// Identity of an object: API version, kind, plural, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

impl Key {
    /// Returns the key of an object in JSON.
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
            name: text(&object["metadata"]["name"]),
        }
    }
}

/// Returns the API group of the custom resources of package `name`.
pub(super) fn group(name: &str) -> String {
    format!("{name}.example.com")
}

/// Returns the objects that `revision` (from 0) of package `name` installs, the namespace first.
pub(super) fn objects(name: &str, revision: u32) -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        definition(name),
    ];
    for index in 0..CONFIG_MAPS {
        // The first four ConfigMaps are in all revisions. Each further ConfigMap is missing in one
        // revision of four.
        if index >= 4 && (index + revision).is_multiple_of(4) {
            continue;
        }
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, &format!("item-{index}"), revision),
            "data": {"index": index.to_string(), "revision": revision.to_string(), (format!("only-{revision}")): "yes"},
        }));
    }
    for index in 0..3 {
        let value = STANDARD.encode(format!("secret {index} of revision {revision}"));
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata(name, &format!("secret-{index}"), revision), "type": "Opaque",
            "data": {"value": value},
        }));
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, "worker", revision),
    }));
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata(name, "worker", revision),
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [format!("item-{revision}")]}],
    }));
    objects.push(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(name, "front", revision),
        "spec": {"selector": {"app": "front"}, "ports": [
            {"name": "web", "port": 80 + revision, "protocol": "TCP", "targetPort": 8080},
            {"name": "admin", "port": 9000, "protocol": "TCP", "targetPort": 9000},
        ]},
    }));
    objects.push(workload(name, revision));
    for index in 0..2 {
        objects.push(json!({
            "apiVersion": format!("{}/v1", group(name)), "kind": "Soak", "metadata": metadata(name, &format!("custom-{index}"), revision),
            "spec": {"size": revision, "index": index},
        }));
    }
    objects
}

fn metadata(namespace: &str, name: &str, revision: u32) -> Value {
    json!({"name": name, "namespace": namespace, "labels": {"soak": namespace, "revision": revision.to_string()}})
}

fn definition(name: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("soaks.{}", group(name))},
        "spec": {
            "group": group(name), "scope": "Namespaced",
            "names": {"kind": "Soak", "listKind": "SoakList", "plural": "soaks", "singular": "soak"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "index": {"type": "integer"}}},
                }}},
            }],
        },
    })
}

/// Returns a Deployment without pods, so that it is healthy without a node.
fn workload(name: &str, revision: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(name, "front", revision),
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "front"}},
            "template": {
                "metadata": {"labels": {"app": "front"}},
                "spec": {"containers": [{
                    "name": "front", "image": format!("registry.example.com/front:{revision}"),
                    "env": [{"name": "REVISION", "value": revision.to_string()}],
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }]},
            },
        },
    })
}

/// Returns the JSON pointer of the first field of `expected` that is missing or different in
/// `found`. Lists must have the same length, and are compared element by element.
pub(super) fn difference(expected: &Value, found: &Value, path: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().find_map(|(key, value)| {
                let path = format!("{path}/{key}");
                match found.get(key) {
                    Some(found) => difference(value, found, &path),
                    None => Some(format!("{path} is missing")),
                }
            })
        }
        (Value::Array(expected), Value::Array(found)) => {
            if expected.len() != found.len() {
                return Some(format!(
                    "{path} has {} elements instead of {}",
                    found.len(),
                    expected.len()
                ));
            }
            expected
                .iter()
                .zip(found)
                .enumerate()
                .find_map(|(index, (expected, found))| {
                    difference(expected, found, &format!("{path}/{index}"))
                })
        }
        _ if expected == found => None,
        _ => Some(format!("{path} is {found} instead of {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_differ_and_each_lacks_objects_of_another() {
        let keys = |revision| {
            objects("soak-0", revision)
                .iter()
                .map(Key::of)
                .collect::<Vec<_>>()
        };
        for revision in 0..REVISIONS {
            let next = (revision + 1) % REVISIONS;
            assert!(
                keys(revision).iter().any(|key| !keys(next).contains(key)),
                "{revision}"
            );
            assert_ne!(objects("soak-0", revision), objects("soak-0", next));
        }
    }

    #[test]
    fn difference_names_the_first_field() {
        let expected = json!({"a": {"b": [1, 2]}, "c": "x"});
        assert_eq!(
            difference(
                &expected,
                &json!({"a": {"b": [1, 2]}, "c": "x", "d": 1}),
                ""
            ),
            None
        );
        let found = json!({"a": {"b": [1, 3]}, "c": "x"});
        assert_eq!(
            difference(&expected, &found, "").unwrap(),
            "/a/b/1 is 3 instead of 2"
        );
        assert_eq!(
            difference(&expected, &json!({"a": {"b": [1]}}), "").unwrap(),
            "/a/b has 1 elements instead of 2"
        );
        assert_eq!(
            difference(&json!({"c": 1}), &json!({}), "").unwrap(),
            "/c is missing"
        );
    }
}
