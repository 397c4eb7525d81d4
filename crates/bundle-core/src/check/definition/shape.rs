//! Fields of a CustomResourceDefinition and their types, as structural schemas. A CRD is therefore
//! checked in the same way as its custom resources.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// Schema of the field `spec` of a CustomResourceDefinition.
pub(super) static SPEC: LazyLock<Value> = LazyLock::new(|| {
    let text = || json!({"type": "string"});
    let texts = || json!({"type": "array", "items": {"type": "string"}});
    let switch = || json!({"type": "boolean"});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let column = object(json!({
        "name": text(), "type": text(), "format": text(), "description": text(), "jsonPath": text(), "priority": {"type": "integer", "format": "int32"},
    }));
    let scale = object(
        json!({"specReplicasPath": text(), "statusReplicasPath": text(), "labelSelectorPath": text()}),
    );
    let version = object(json!({
        "name": text(), "served": switch(), "storage": switch(), "deprecated": switch(), "deprecationWarning": {"type": "string", "nullable": true},
        "schema": object(json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})),
        "subresources": object(json!({"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "scale": scale})),
        "additionalPrinterColumns": {"type": "array", "items": column},
        "selectableFields": {"type": "array", "items": object(json!({"jsonPath": text()}))},
    }));
    let service = object(
        json!({"name": text(), "namespace": text(), "path": text(), "port": {"type": "integer", "format": "int32"}}),
    );
    let client = object(
        json!({"url": text(), "service": service, "caBundle": {"type": "string", "format": "byte"}}),
    );
    object(json!({
        "group": text(), "scope": text(), "preserveUnknownFields": switch(),
        "names": object(json!({"plural": text(), "singular": text(), "kind": text(), "listKind": text(), "shortNames": texts(), "categories": texts()})),
        "versions": {"type": "array", "items": version},
        "conversion": object(json!({"strategy": text(), "webhook": object(json!({"clientConfig": client, "conversionReviewVersions": texts()}))})),
    }))
});

/// Keywords of one schema in `openAPIV3Schema`. Nested schemas are not included.
pub(super) static NODE: LazyLock<Value> = LazyLock::new(|| {
    let any = json!({"x-kubernetes-preserve-unknown-fields": true});
    let map = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let maps = json!({"type": "array", "items": map});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let mut fields = serde_json::Map::new();
    let mut add = |names: &[&str], schema: &Value| {
        for name in names {
            fields.insert((*name).to_owned(), schema.clone());
        }
    };
    add(
        &[
            "$ref",
            "$schema",
            "description",
            "format",
            "id",
            "pattern",
            "title",
            "type",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
        ],
        &json!({"type": "string"}),
    );
    add(
        &[
            "exclusiveMaximum",
            "exclusiveMinimum",
            "nullable",
            "uniqueItems",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
        ],
        &json!({"type": "boolean"}),
    );
    add(
        &["maximum", "minimum", "multipleOf"],
        &json!({"type": "number"}),
    );
    add(
        &[
            "maxItems",
            "maxLength",
            "maxProperties",
            "minItems",
            "minLength",
            "minProperties",
        ],
        &json!({"type": "integer"}),
    );
    add(&["required", "x-kubernetes-list-map-keys"], &texts);
    add(&["allOf", "anyOf", "oneOf"], &maps);
    add(&["enum"], &json!({"type": "array", "items": any}));
    add(
        &[
            "definitions",
            "dependencies",
            "externalDocs",
            "not",
            "patternProperties",
        ],
        &map,
    );
    add(
        &["properties"],
        &json!({"type": "object", "additionalProperties": map}),
    );
    add(
        &[
            "additionalItems",
            "additionalProperties",
            "default",
            "example",
            "items",
        ],
        &any,
    );
    let rule = json!({"type": "object", "properties": {
        "rule": {"type": "string"}, "message": {"type": "string"}, "messageExpression": {"type": "string"}, "reason": {"type": "string"},
        "fieldPath": {"type": "string"}, "optionalOldSelf": {"type": "boolean"},
    }});
    add(
        &["x-kubernetes-validations"],
        &json!({"type": "array", "items": rule}),
    );
    json!({"type": "object", "properties": fields})
});
