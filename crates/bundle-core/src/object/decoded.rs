//! Fields of a decoded object that are never applied: nulls, and placeholders for certificates that another program injects.
//!
//! With server-side apply a null is a value: the API server stores the default, and the field belongs to whoever applied it. So `replicas: null`
//! would fight with an autoscaler. `kubectl apply` without `--server-side`, and helm, leave a null field out; so do we.

use serde_json::Value;

use crate::version::apis;

/// Maps of Kubernetes' own kinds in which each key is the author's. A null in them is an empty value, and not an absent field.
pub const MAPS: &[&str] = &[
    "annotations",
    "attributes",
    "binaryData",
    "capacity",
    "counters",
    "data",
    "default",
    "defaultRequest",
    "deprecatedTopology",
    "extra",
    "hard",
    "labels",
    "limits",
    "matchLabels",
    "max",
    "maxLimitRequestRatio",
    "min",
    "nodeSelector",
    "options",
    "overhead",
    "parameters",
    "podFixed",
    "requests",
    "selector",
    "stringData",
    "unverifiedUserAnnotations",
    "userAnnotations",
    "volumeAttributes",
];

/// Certificates that mean "to be filled in": nothing, and a line break, which generators write because some API servers refused nothing.
const PLACEHOLDERS: &[&str] = &["", "Cg=="];

/// Drops what means nothing from an object of one of Kubernetes' own kinds. What a null means in a custom resource, its definition says.
pub fn drop_meaningless(value: &mut Value) {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api, kind) = (text("apiVersion"), text("kind").to_owned());
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    if apis::api(group, version, &kind).is_none() {
        return;
    }
    if kind == "CustomResourceDefinition" {
        // In a schema a null can be a default, or one of the allowed values.
        drop_placeholder(value.pointer_mut("/spec/conversion/webhook/clientConfig"));
        return;
    }
    drop_nulls(value, false);
    match kind.as_str() {
        "APIService" => drop_placeholder(value.get_mut("spec")),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let webhooks = value.get_mut("webhooks").and_then(Value::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                drop_placeholder(webhook.get_mut("clientConfig"));
            }
        }
        _ => {}
    }
}

fn drop_nulls(value: &mut Value, is_map: bool) {
    match value {
        Value::Object(fields) => {
            if !is_map {
                fields.retain(|_, value| !value.is_null());
            }
            for (key, value) in fields {
                drop_nulls(value, !is_map && MAPS.contains(&key.as_str()));
            }
        }
        Value::Array(items) => {
            for item in items {
                drop_nulls(item, false);
            }
        }
        _ => {}
    }
}

fn drop_placeholder(client: Option<&mut Value>) {
    let Some(client) = client.and_then(Value::as_object_mut) else {
        return;
    };
    let authority = client.get("caBundle").and_then(Value::as_str);
    if authority.is_some_and(|authority| PLACEHOLDERS.contains(&authority)) {
        client.remove("caBundle");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dropped(value: Value) -> Value {
        let mut value = value;
        drop_meaningless(&mut value);
        value
    }

    #[test]
    fn drops_null_fields_and_keeps_nulls_in_maps_of_the_author() {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "creationTimestamp": null, "annotations": null},
            "spec": {"replicas": null, "template": {"spec": {"nodeSelector": {"a": null}, "containers": [{"name": "a", "args": [null], "resources": null}]}}}});
        assert_eq!(
            dropped(deployment),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"template": {"spec": {"nodeSelector": {"a": null}, "containers": [{"name": "a", "args": [null]}]}}}})
        );
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": null, "labels": "b"}});
        assert_eq!(dropped(map.clone()), map);
    }

    #[test]
    fn keeps_nulls_of_custom_resources_and_definitions() {
        for value in [
            json!({"apiVersion": "example.com/v1", "kind": "Shop", "spec": {"size": null}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"a": {"default": null}}}),
        ] {
            assert_eq!(dropped(value.clone()), value);
        }
    }

    #[test]
    fn drops_certificates_that_are_placeholders() {
        for (placeholder, stays) in [("", false), ("Cg==", false), ("YQ==", true)] {
            for (api, kind, pointer) in [
                (
                    "admissionregistration.k8s.io/v1",
                    "ValidatingWebhookConfiguration",
                    "/webhooks/0/clientConfig/caBundle",
                ),
                (
                    "admissionregistration.k8s.io/v1",
                    "MutatingWebhookConfiguration",
                    "/webhooks/0/clientConfig/caBundle",
                ),
                (
                    "apiextensions.k8s.io/v1",
                    "CustomResourceDefinition",
                    "/spec/conversion/webhook/clientConfig/caBundle",
                ),
                ("apiregistration.k8s.io/v1", "APIService", "/spec/caBundle"),
            ] {
                let client = json!({"caBundle": placeholder, "service": {"name": "a"}});
                let value = dropped(
                    json!({"apiVersion": api, "kind": kind, "webhooks": [{"clientConfig": client}],
                    "spec": {"caBundle": placeholder, "conversion": {"webhook": {"clientConfig": client}}}}),
                );
                assert_eq!(
                    value.pointer(pointer).is_some(),
                    stays,
                    "{kind} {placeholder:?}"
                );
            }
        }
    }
}
