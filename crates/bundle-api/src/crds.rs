//! CRDs as they are applied: derived from the types, with edits for constraints that the derive
//! macro cannot express. `cargo xtask gen` writes the CRDs to files.

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::{Bundle, BundleApproval, BundleDeployment, ProvisionerClass, SignaturePolicy, names};

/// Returns the CRDs of all kinds as objects to apply, sorted by name.
pub fn all() -> Result<Vec<Value>, serde_json::Error> {
    let mut crds = vec![
        serde_json::to_value(BundleApproval::crd())?,
        serde_json::to_value(BundleDeployment::crd())?,
        serde_json::to_value(Bundle::crd())?,
        serde_json::to_value(ProvisionerClass::crd())?,
        serde_json::to_value(SignaturePolicy::crd())?,
    ];
    for crd in &mut crds {
        tidy(crd);
        let name = crd["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let Some(schema) = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") else {
            continue;
        };
        match name.split('.').next().unwrap_or_default() {
            "bundles" => {
                limit_name(schema, names::BUNDLE_NAME_LIMIT);
                unions(&mut schema["properties"]["spec"]);
            }
            "bundledeployments" => {
                limit_name(schema, names::DEPLOYMENT_NAME_LIMIT);
                unions(
                    &mut schema["properties"]["spec"]["properties"]["template"]["properties"]["spec"],
                );
            }
            "bundleapprovals" => {
                schema["properties"]["spec"]["x-kubernetes-validations"] = json!([{"rule": "self == oldSelf", "message": "bundleapproval.spec is immutable"}]);
            }
            "provisionerclasses" | "signaturepolicies" => {
                keep_unknown_fields(&mut schema["properties"]["spec"]);
            }
            _ => {}
        }
    }
    Ok(crds)
}

/// Makes the API server store unknown fields instead of removing them. The code that reads the spec
/// rejects unknown fields, because a field of a later version can be a restriction that this
/// version does not enforce.
fn keep_unknown_fields(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(keep_unknown_fields);
        members.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            true.into(),
        );
    }
    if let Some(items) = members.get_mut("items") {
        keep_unknown_fields(items);
    }
}

/// Sets the maximum length of `metadata.name`. The API server rejects longer names with
/// `metadata.name: Too long: may not be longer than N`.
fn limit_name(schema: &mut Value, limit: usize) {
    schema["properties"]["metadata"] =
        json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": limit}}});
}

/// Requires exactly one source, and exactly one git reference. The API server rejects other specs
/// with `must validate one and only one schema (oneOf)`.
fn unions(bundle_spec: &mut Value) {
    let one_of = |members: &[&str]| -> Value {
        members
            .iter()
            .map(|member| json!({"required": [member]}))
            .collect()
    };
    let source = &mut bundle_spec["properties"]["source"];
    source["oneOf"] = one_of(&["image", "git", "configMaps", "upload", "http"]);
    source["properties"]["git"]["properties"]["ref"]["oneOf"] =
        one_of(&["branch", "commit", "tag"]);
}

/// Adapts a derived schema to Kubernetes. Removes `nullable` (the API server removes null values),
/// defaults, and the line breaks of descriptions. Replaces unsigned integer formats, because the
/// API server warns about these formats.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(members) => {
            tidy_members(members);
            members.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn tidy_members(members: &mut Map<String, Value>) {
    if members.get("nullable") == Some(&Value::Bool(true)) {
        members.remove("nullable");
    }
    if let Some(format) = members.get_mut("format") {
        match format.as_str() {
            Some("uint64") => *format = json!("int64"),
            Some("uint32") => *format = json!("int32"),
            _ => {}
        }
    }
    // Doc comments have line breaks for the reader of the source. `kubectl explain` breaks lines
    // itself, so the description has no line breaks except between paragraphs.
    if let Some(Value::String(text)) = members.get_mut("description") {
        *text = text
            .replace("\n\n", "\u{0}")
            .replace('\n', " ")
            .replace('\u{0}', "\n\n");
    }
    // The code that reads a field provides the default of the field. A default in the schema would
    // be written into the objects of users.
    if members.contains_key("type") && members.contains_key("default") {
        members.remove("default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(name: &str) -> Value {
        all()
            .unwrap()
            .into_iter()
            .find(|crd| crd["metadata"]["name"] == format!("{name}.core.rukpak.io"))
            .unwrap()
    }

    fn schema(name: &str) -> Value {
        crd(name)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    #[test]
    fn all_kinds_are_cluster_scoped_with_status() {
        for crd in all().unwrap() {
            assert_eq!(crd["spec"]["scope"], "Cluster");
            assert_eq!(
                crd["spec"]["versions"][0]["subresources"],
                json!({"status": {}})
            );
        }
    }

    /// Collects the paths of the lists in `schema` that have no `maxItems`.
    fn unbounded_lists(schema: &Value, path: &str, found: &mut Vec<String>) {
        if schema["type"] == "array" && !schema["maxItems"].is_u64() {
            found.push(path.to_owned());
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            unbounded_lists(field, &format!("{path}.{name}"), found);
        }
        if schema["items"].is_object() {
            unbounded_lists(&schema["items"], &format!("{path}[]"), found);
        }
    }

    #[test]
    fn every_list_in_a_status_has_max_items() {
        for crd in all().unwrap() {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let mut found = Vec::new();
            unbounded_lists(&schema["properties"]["status"], "status", &mut found);
            assert!(found.is_empty(), "{}: {found:?}", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn unknown_fields_of_classes_and_policies_are_stored() {
        for (name, path) in [
            ("provisionerclasses", ""),
            ("provisionerclasses", "/properties/sources"),
            ("signaturepolicies", ""),
            (
                "signaturepolicies",
                "/properties/authorities/items/properties/keyless",
            ),
        ] {
            let schema = schema(name);
            let keeps = format!("/properties/spec{path}/x-kubernetes-preserve-unknown-fields");
            assert_eq!(schema.pointer(&keeps), Some(&json!(true)), "{name} {keeps}");
        }
        let parameters =
            "/properties/spec/properties/parameters/x-kubernetes-preserve-unknown-fields";
        assert_eq!(schema("provisionerclasses").pointer(parameters), None);
    }

    #[test]
    fn limits_names_and_sources_like_rukpak() {
        let bundle = schema("bundles");
        assert_eq!(
            bundle["properties"]["metadata"]["properties"]["name"]["maxLength"],
            52
        );
        let spec = &bundle["properties"]["spec"];
        assert_eq!(spec["required"], json!(["provisionerClassName", "source"]));
        assert_eq!(
            spec["properties"]["source"]["oneOf"]
                .as_array()
                .unwrap()
                .len(),
            5
        );
        assert_eq!(
            spec["properties"]["source"]["properties"]["git"]["properties"]["ref"]["oneOf"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        let deployment = schema("bundledeployments");
        assert_eq!(
            deployment["properties"]["metadata"]["properties"]["name"]["maxLength"],
            45
        );
        let template =
            &deployment["properties"]["spec"]["properties"]["template"]["properties"]["spec"];
        assert_eq!(template["properties"], spec["properties"]);
        assert_eq!(
            crd("bundledeployments")["spec"]["names"]["shortNames"],
            json!(["bd", "bds"])
        );
        assert_eq!(
            crd("bundledeployments")["metadata"]["labels"][names::LABEL_APPLYSET_PARENT_TYPE],
            "true"
        );
    }

    /// Checks that each field has a type and a description.
    #[test]
    fn every_field_has_type_and_description() {
        fn walk(path: &str, schema: &Value) {
            if let Some(properties) = schema["properties"].as_object() {
                for (name, property) in properties {
                    let path = format!("{path}.{name}");
                    let known = path.ends_with(".metadata") || path.ends_with(".metadata.name");
                    assert!(
                        known
                            || property["description"]
                                .as_str()
                                .is_some_and(|text| text.len() > 8),
                        "{path} is not explained"
                    );
                    assert!(
                        property["type"].is_string(),
                        "{path} has no type: {property}"
                    );
                    assert!(
                        property.get("nullable").is_none() && property.get("default").is_none(),
                        "{path}: {property}"
                    );
                    walk(&path, property);
                }
            }
            if schema["items"].is_object() {
                walk(&format!("{path}[]"), &schema["items"]);
            }
        }
        for crd in all().unwrap() {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            for part in ["spec", "status"] {
                walk(
                    &format!("{}.{part}", crd["spec"]["names"]["kind"]),
                    &schema["properties"][part],
                );
            }
        }
    }
}
