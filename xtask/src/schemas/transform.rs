//! Conversion of a definition. The result contains only keywords that the checks read and the API
//! server enforces.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Definitions;

/// Required fields of each definition in the newest version. Fields that are required only in older
/// documents are ignored: these documents had errors that were corrected later, while the rules of
/// the API server did not change.
pub(super) type Required = BTreeMap<String, BTreeSet<String>>;

/// Fields that the documents list as required but the API server does not enforce, because their
/// zero value is valid or is replaced by a default. Each field was tested with a real API server.
const NOT_ENFORCED: &[(&str, &str)] = &[
    ("io.k8s.api.apps.v1.ControllerRevision", "revision"),
    ("io.k8s.api.batch.v1.PodFailurePolicy", "rules"),
    ("io.k8s.api.core.v1.HTTPHeader", "value"),
    ("io.k8s.api.core.v1.ISCSIPersistentVolumeSource", "lun"),
    ("io.k8s.api.core.v1.ISCSIVolumeSource", "lun"),
    ("io.k8s.api.core.v1.LimitRangeSpec", "limits"),
    ("io.k8s.api.core.v1.SleepAction", "seconds"),
    ("io.k8s.api.core.v1.Sysctl", "value"),
    ("io.k8s.api.storage.v1.CSIDriver", "spec"),
    ("io.k8s.api.storage.v1.CSINode", "spec"),
    ("io.k8s.api.storage.v1.CSINodeSpec", "drivers"),
    ("io.k8s.api.storage.v1.TokenRequest", "audience"),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.GroupResource",
        "group",
    ),
];

/// API groups for which required fields are ignored. Nodes, schedulers and recorders write objects
/// of these groups, and zero values are valid in most fields.
const LENIENT: &[&str] = &[
    "io.k8s.api.resource.",
    "io.k8s.api.events.",
    "io.k8s.api.core.v1.Event",
];

/// Extensions and keywords that the checks read.
const KEPT: &[&str] = &[
    "type",
    "format",
    "enum",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
];

/// Returns the required fields of each definition that the API server enforces.
pub(super) fn required(definitions: &Definitions) -> Required {
    definitions
        .iter()
        .map(|(name, definition)| {
            let fields = definition["required"].as_array().into_iter().flatten();
            let fields = fields
                .filter_map(Value::as_str)
                .filter(|field| !NOT_ENFORCED.contains(&(name.as_str(), field)))
                .filter(|_| !LENIENT.iter().any(|group| name.starts_with(group)))
                .map(str::to_owned);
            (name.clone(), fields.collect())
        })
        .collect()
}

/// Returns `GROUP/VERSION/KIND` of the objects of a definition. Returns an empty list for parts of
/// objects, lists, requests, and CustomResourceDefinitions, which have separate checks.
pub(super) fn kinds(name: &str, definition: &Value) -> Vec<String> {
    let is_object = definition
        .pointer("/properties/metadata/allOf/0/$ref")
        .is_some_and(|meta| {
            meta.as_str()
                .is_some_and(|meta| meta.ends_with(".ObjectMeta"))
        });
    let is_request = ["io.k8s.api.authentication.", "io.k8s.api.authorization."]
        .iter()
        .any(|group| name.starts_with(group));
    let kinds = definition["x-kubernetes-group-version-kind"].as_array();
    kinds
        .into_iter()
        .flatten()
        .filter(|_| is_object && !is_request)
        .map(|kind| {
            let part = |key: &str| kind[key].as_str().unwrap_or_default();
            format!("{}/{}/{}", part("group"), part("version"), part("kind"))
        })
        .filter(|kind| !kind.ends_with("/CustomResourceDefinition"))
        .collect()
}

/// Returns the schema of a definition. References in the schema contain the names of definitions.
pub(super) fn definition(name: &str, definition: &Value, required: &Required) -> Value {
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            return json!({"x-bundle-format": "quantity"});
        }
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            return json!({"x-kubernetes-int-or-string": true, "format": "int32"});
        }
        _ => {}
    }
    let mut schema = schema(definition, required);
    if let Some(map) = schema.as_object_mut() {
        let own = required.get(name);
        let fields: Vec<Value> = map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|field| {
                let field = field.as_str().unwrap_or_default();
                own.is_some_and(|own| own.contains(field))
            })
            .cloned()
            .collect();
        if fields.is_empty() {
            map.remove("required");
        } else {
            map.insert("required".to_owned(), fields.clone().into());
        }
        // The API server treats an empty text as absent, unless the field is required.
        for (field, schema) in map
            .get_mut("properties")
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            let empty = Value::from("");
            if let Some(Value::Array(values)) = schema.get_mut("enum")
                && !fields.iter().any(|one| one.as_str() == Some(field))
                && !values.contains(&empty)
            {
                values.push(empty);
            }
        }
    }
    schema
}

fn schema(from: &Value, required: &Required) -> Value {
    if let Some(name) = reference(from) {
        // The API server decodes an absent object as an empty object, and then requires the fields
        // of this object.
        let is_filled = from.get("default").is_some_and(Value::is_object)
            && required.get(name).is_some_and(|fields| !fields.is_empty());
        return if is_filled {
            json!({ "$ref": name, "default": {} })
        } else {
            json!({ "$ref": name })
        };
    }
    let mut to = Map::new();
    for key in KEPT {
        if let Some(value) = from.get(*key) {
            to.insert((*key).to_owned(), value.clone());
        }
    }
    if from["type"] == "string" && from["format"] == "byte" {
        to.remove("format");
        to.insert("x-bundle-format".to_owned(), "base64".into());
    }
    // Only the defaults of list keys can change the result of a check. The checks treat zero values
    // as absent.
    if let Some(default) = from
        .get("default")
        .filter(|default| default.as_str().is_some_and(|text| !text.is_empty()))
    {
        to.insert("default".to_owned(), default.clone());
    }
    if let Some(Value::Object(fields)) = from.get("properties") {
        let fields = fields
            .iter()
            .map(|(name, field)| (name.clone(), schema(field, required)));
        to.insert(
            "properties".to_owned(),
            fields.collect::<Map<_, _>>().into(),
        );
    } else if from["type"] == "object" && from.get("additionalProperties").is_none() {
        to.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            true.into(),
        );
    }
    for key in ["items", "additionalProperties"] {
        match from.get(key) {
            Some(inner @ Value::Object(_)) => {
                let mut inner = schema(inner, required);
                // The API server decodes a null in a list of texts or numbers as an empty value.
                let is_plain = inner["type"] == "string" || inner["type"] == "integer";
                if key == "items" && is_plain && !is_set(from) {
                    inner["nullable"] = true.into();
                }
                to.insert(key.to_owned(), inner);
            }
            Some(other) => {
                to.insert(key.to_owned(), other.clone());
            }
            None => {}
        }
    }
    Value::Object(to)
}

fn is_set(list: &Value) -> bool {
    list["x-kubernetes-list-type"] == "set"
}

/// Returns the name of the definition to which a schema refers, directly or inside `allOf`.
fn reference(from: &Value) -> Option<&str> {
    let reference = from.get("$ref").or_else(|| from.pointer("/allOf/0/$ref"))?;
    reference.as_str()?.rsplit('/').next()
}
