//! Valid and invalid CustomResourceDefinitions.

use serde_json::{Value, json};

use super::Case;

mod names;
mod rules;
mod schemas;

/// Returns a valid CustomResourceDefinition.
pub(super) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.checks.example.com"},
        "spec": {
            "group": "checks.example.com",
            "scope": "Namespaced",
            "names": {"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList", "shortNames": ["sh"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "name": {"type": "string"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
                "subresources": {"status": {}},
            }],
        },
    })
}

fn schema(crd: &mut Value) -> &mut Value {
    &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Returns the schema of `spec`.
pub(super) fn spec(crd: &mut Value) -> &mut Value {
    &mut schema(crd)["properties"]["spec"]
}

/// Sets the schema of a field of `spec`.
fn field(crd: &mut Value, value: Value) {
    spec(crd)["properties"]["field"] = value;
}

/// Returns all cases.
pub(super) fn cases() -> Vec<Case> {
    [names::CASES, schemas::CASES, rules::CASES].concat()
}
