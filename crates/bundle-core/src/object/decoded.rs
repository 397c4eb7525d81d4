//! Normalization of parsed objects before they are applied: removes nulls and placeholders for
//! injected CA certificates, and converts `stringData` of a Secret to `data`.
//!
//! In server-side apply a null is a value: the API server stores the default, and the applier owns
//! the field. Therefore `replicas: null` would conflict with an autoscaler. This module omits null
//! fields, like helm and like `kubectl apply` without `--server-side`.
//!
//! The API server adds `stringData` to `data` when it stores a Secret, but the applier owns only
//! `stringData`. Without the conversion, changes in `data` and removed keys would not be detected.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::version::apis;

/// Maps of built-in kinds whose keys the author chooses. A null in such a map is an empty value,
/// not an absent field.
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

/// Placeholder values for certificates: an empty value, and a line break, which generators write
/// because some API servers rejected empty values.
const PLACEHOLDERS: &[&str] = &["", "Cg=="];

/// Removes fields without meaning from an object of a built-in kind, and converts `stringData` of a
/// Secret to `data`. Custom resources are not changed, because their CRD defines the meaning of
/// nulls.
pub fn normalize(value: &mut Value) {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api, kind) = (text("apiVersion"), text("kind").to_owned());
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    if apis::api(group, version, &kind).is_none() {
        return;
    }
    if kind == "CustomResourceDefinition" {
        // Nulls in a CRD are kept, because null can be a default or an allowed value in its schema.
        drop_placeholder(value.pointer_mut("/spec/conversion/webhook/clientConfig"));
        return;
    }
    drop_nulls(value, false);
    match kind.as_str() {
        "Secret" => fold_string_data(value),
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

/// Adds `stringData` to `data` like the API server: base64-encoded, and with precedence over the
/// same key in `data`. Values that the API server would reject are not changed.
fn fold_string_data(value: &mut Value) {
    let Some(secret) = value.as_object_mut() else {
        return;
    };
    let is_text = |value: &Value| value.is_string() || value.is_null();
    let can_be_folded = match (secret.get("stringData"), secret.get("data")) {
        (Some(Value::Object(texts)), None | Some(Value::Object(_))) => texts.values().all(is_text),
        _ => false,
    };
    if !can_be_folded {
        return;
    }
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    if texts.is_empty() {
        return;
    }
    let data = secret
        .entry("data")
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    for (key, text) in texts {
        data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
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

    fn normalized(value: Value) -> Value {
        let mut value = value;
        normalize(&mut value);
        value
    }

    #[test]
    fn drops_null_fields_and_keeps_nulls_in_maps_of_the_author() {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "creationTimestamp": null, "annotations": null},
            "spec": {"replicas": null, "template": {"spec": {"nodeSelector": {"a": null}, "containers": [{"name": "a", "args": [null], "resources": null}]}}}});
        assert_eq!(
            normalized(deployment),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"template": {"spec": {"nodeSelector": {"a": null}, "containers": [{"name": "a", "args": [null]}]}}}})
        );
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": null, "labels": "b"}});
        assert_eq!(normalized(map.clone()), map);
    }

    #[test]
    fn keeps_nulls_of_custom_resources_and_definitions() {
        for value in [
            json!({"apiVersion": "example.com/v1", "kind": "Shop", "spec": {"size": null}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"a": {"default": null}}}),
        ] {
            assert_eq!(normalized(value.clone()), value);
        }
    }

    #[test]
    fn adds_string_data_of_secrets_to_data_as_the_api_server_does() {
        let secret = |more: Value| {
            let mut secret = json!({"apiVersion": "v1", "kind": "Secret"});
            for (key, value) in more.as_object().into_iter().flatten() {
                secret[key] = value.clone();
            }
            secret
        };
        for (written, applied) in [
            (
                json!({"stringData": {"a": "b"}}),
                json!({"data": {"a": "Yg=="}}),
            ),
            // `stringData` has priority, even if its text is empty.
            (
                json!({"stringData": {"a": "b", "n": null}, "data": {"a": "eA==", "c": "ZA=="}}),
                json!({"data": {"a": "Yg==", "c": "ZA==", "n": ""}}),
            ),
            (json!({"stringData": {}}), json!({})),
            (json!({"stringData": null, "data": {}}), json!({"data": {}})),
            // The API server rejects these Secrets, so they are not changed.
            (
                json!({"stringData": {"a": 1}}),
                json!({"stringData": {"a": 1}}),
            ),
            (
                json!({"stringData": {"a": "b"}, "data": []}),
                json!({"stringData": {"a": "b"}, "data": []}),
            ),
        ] {
            assert_eq!(
                normalized(secret(written.clone())),
                secret(applied),
                "{written}"
            );
        }
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "stringData": {"a": "b"}});
        assert_eq!(normalized(other.clone()), other);
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
                let value = normalized(
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
