//! Normalization of an object before its apply. The namespace and labels are set, and fields that
//! the API server sets are removed.

use serde_json::{Map, Value};

/// Fields of `metadata` that the API server sets. Exported objects contain these fields.
const SERVER_FIELDS: [&str; 5] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "generation",
    "creationTimestamp",
];

/// Sets or removes the namespace of an object, adds `labels`, and removes fields that the API
/// server or a controller sets.
pub fn normalize(value: &mut Value, namespace: Option<&str>, labels: &[(&str, &str)]) {
    let metadata = member(value, "metadata");
    match namespace {
        Some(namespace) => *member(metadata, "namespace") = Value::String(namespace.to_owned()),
        None => {
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.remove("namespace");
            }
        }
    }
    if let Some(metadata) = metadata.as_object_mut() {
        for field in SERVER_FIELDS {
            metadata.remove(field);
        }
    }
    if !labels.is_empty() {
        let existing = member(metadata, "labels");
        for (label, text) in labels {
            *member(existing, label) = Value::String((*text).to_owned());
        }
    }
    let is_aggregated = is_aggregated_role(value);
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
        if is_aggregated {
            object.remove("rules");
        }
    }
}

/// Returns true for a ClusterRole with an `aggregationRule`. A controller of Kubernetes overwrites
/// the rules of such a role: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>,
/// "Aggregated ClusterRoles".
fn is_aggregated_role(value: &Value) -> bool {
    value["kind"] == "ClusterRole"
        && value["apiVersion"]
            .as_str()
            .is_some_and(|version| version.starts_with("rbac.authorization.k8s.io/"))
        && !value["aggregationRule"].is_null()
}

/// Returns a member of an object, and creates the member if necessary. A value of another type
/// becomes an object.
fn member<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    &mut value[name]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_namespace_and_labels_and_removes_fields_of_the_server() {
        let exported =
            json!({"metadata": {"name": "x", "uid": "1", "labels": {"app": "a"}}, "status": {}});
        let settled = |namespace, labels: &[(&str, &str)]| {
            let mut value = exported.clone();
            normalize(&mut value, namespace, labels);
            value
        };
        assert_eq!(
            settled(Some("web"), &[("owner", "b")]),
            json!({"metadata": {"name": "x", "namespace": "web", "labels": {"app": "a", "owner": "b"}}})
        );
        assert_eq!(
            settled(None, &[]),
            json!({"metadata": {"name": "x", "labels": {"app": "a"}}})
        );
    }

    #[test]
    fn rules_of_an_aggregated_role_are_left_to_their_controller() {
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let of = |version: &str, kind: &str, aggregation: Value| {
            let mut value = json!({
                "apiVersion": version, "kind": kind, "metadata": {"name": "x"},
                "aggregationRule": aggregation, "rules": rules,
            });
            normalize(&mut value, None, &[]);
            value.get("rules").is_some()
        };
        let role = "rbac.authorization.k8s.io/v1";
        let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        assert!(!of(role, "ClusterRole", selectors.clone()));
        assert!(!of(role, "ClusterRole", json!({})));
        assert!(of(role, "ClusterRole", Value::Null));
        assert!(of("example.com/v1", "ClusterRole", selectors));
    }
}
