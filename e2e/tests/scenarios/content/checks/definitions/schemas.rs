//! Schemas: types, formats, keys of lists, and branches.

use serde_json::json;

use super::{Case, field, schema, spec};

/// Name, expected result, and change of the definition.
pub(super) const CASES: &[Case] = &[
    ("a root without type", false, |crd| {
        drop(schema(crd).as_object_mut().unwrap().remove("type"));
    }),
    ("a root that is text", false, |crd| {
        *schema(crd) = json!({"type": "string"});
    }),
    ("a root that may be null", false, |crd| {
        schema(crd)["nullable"] = json!(true);
    }),
    (
        "a root that is a map",
        false,
        |crd| *schema(crd) = json!({"type": "object", "additionalProperties": {"type": "string"}}),
    ),
    ("alternatives at a root with status", false, |crd| {
        schema(crd)["anyOf"] = json!([{"required": ["spec"]}]);
    }),
    ("alternatives at a root without status", true, |crd| {
        crd["spec"]["versions"][0]["subresources"] = json!({});
        schema(crd)["anyOf"] = json!([{"required": ["spec"]}]);
    }),
    ("a root with a name's pattern", true, |crd| {
        schema(crd)["properties"]["metadata"] = json!({"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}}});
    }),
    ("a root with labels", false, |crd| {
        schema(crd)["properties"]["metadata"] =
            json!({"type": "object", "properties": {"labels": {"type": "object"}}});
    }),
    ("a root with apiVersion as a number", false, |crd| {
        schema(crd)["properties"]["apiVersion"] = json!({"type": "integer"});
    }),
    ("a default in metadata", false, |crd| {
        schema(crd)["properties"]["kind"] = json!({"type": "string", "default": "Shop"});
    }),
    ("a field without type", false, |crd| {
        field(crd, json!({"description": "a"}));
    }),
    ("a field that keeps everything", true, |crd| {
        field(crd, json!({"x-kubernetes-preserve-unknown-fields": true}));
    }),
    ("a field that keeps nothing", false, |crd| {
        field(
            crd,
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
        );
    }),
    ("a field of an unknown type", false, |crd| {
        field(crd, json!({"type": "text"}));
    }),
    ("a field of type null", false, |crd| {
        field(crd, json!({"type": "null"}));
    }),
    ("a list of types", false, |crd| {
        field(crd, json!({"type": ["string", "null"]}));
    }),
    ("a field with const", false, |crd| {
        field(crd, json!({"type": "string", "const": "a"}));
    }),
    ("a reference", false, |crd| {
        field(crd, json!({"$ref": "#/definitions/a"}));
    }),
    ("definitions", false, |crd| {
        spec(crd)["definitions"] = json!({"a": {"type": "string"}});
    }),
    ("pattern properties", false, |crd| {
        field(
            crd,
            json!({"type": "object", "patternProperties": {"^a": {"type": "string"}}}),
        );
    }),
    ("unique items", false, |crd| {
        field(
            crd,
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
        );
    }),
    ("a list without items", false, |crd| {
        field(crd, json!({"type": "array"}));
    }),
    ("a list with a list of items", false, |crd| {
        field(crd, json!({"type": "array", "items": [{"type": "string"}]}));
    }),
    ("items without type", false, |crd| {
        field(crd, json!({"type": "array", "items": {"maxLength": 1}}));
    }),
    ("a map with fields", false, |crd| {
        field(
            crd,
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        );
    }),
    ("a map", true, |crd| {
        field(
            crd,
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
        );
    }),
    ("a map of anything", true, |crd| {
        field(crd, json!({"type": "object", "additionalProperties": true}));
    }),
    ("an object without others", true, |crd| {
        field(
            crd,
            json!({"type": "object", "additionalProperties": false}),
        );
    }),
    ("a maximum as text", false, |crd| {
        field(crd, json!({"type": "integer", "maximum": "3"}));
    }),
    ("a length that is a fraction", false, |crd| {
        field(crd, json!({"type": "string", "maxLength": 1.5}));
    }),
    ("a pattern", true, |crd| {
        field(
            crd,
            json!({"type": "string", "pattern": r"^[\w.-]+(\d{1,3})?[&&x]\z$"}),
        );
    }),
    ("a pattern that looks ahead", false, |crd| {
        field(crd, json!({"type": "string", "pattern": "a(?=b)"}));
    }),
    ("a pattern with too many repetitions", false, |crd| {
        field(crd, json!({"type": "string", "pattern": "a{1001}"}));
    }),
    ("a pattern that is open", false, |crd| {
        field(crd, json!({"type": "string", "pattern": "(a"}));
    }),
    ("an unknown format", true, |crd| {
        field(crd, json!({"type": "string", "format": "colour"}));
    }),
    ("int or string", true, |crd| {
        field(
            crd,
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+%?$"}),
        );
    }),
    ("int or string, in allOf", true, |crd| {
        field(
            crd,
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}]}),
        );
    }),
    ("int or string the other way round", false, |crd| {
        field(
            crd,
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
        );
    }),
    ("int or string with a type", true, |crd| {
        field(
            crd,
            json!({"x-kubernetes-int-or-string": true, "type": "string"}),
        );
    }),
    ("int or string that keeps everything", false, |crd| {
        field(
            crd,
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
        );
    }),
    ("an embedded object", true, |crd| {
        field(
            crd,
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        );
    }),
    ("an embedded object without fields", false, |crd| {
        field(
            crd,
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        );
    }),
    ("embedded text", false, |crd| {
        field(
            crd,
            json!({"type": "string", "x-kubernetes-embedded-resource": true}),
        );
    }),
    ("a branch with a type", false, |crd| {
        field(
            crd,
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"properties": {"a": {"type": "string"}}}]}),
        );
    }),
    ("a branch with limits", true, |crd| {
        field(
            crd,
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"properties": {"a": {"enum": ["x"]}}}, {"not": {"required": ["a"]}}]}),
        );
    }),
    ("a branch with an unknown field", true, |crd| {
        field(
            crd,
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"properties": {"b": {"maxLength": 1}}}]}),
        );
    }),
    ("a branch with a description", false, |crd| {
        field(
            crd,
            json!({"type": "string", "anyOf": [{"description": "x", "maxLength": 1}]}),
        );
    }),
    ("a branch with rules", false, |crd| {
        field(
            crd,
            json!({"type": "string", "allOf": [{"x-kubernetes-validations": [{"rule": "self == 'a'"}]}]}),
        );
    }),
    ("a set", true, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
        );
    }),
    ("a set of objects", false, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
        );
    }),
    ("a set of atoms", true, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object", "x-kubernetes-map-type": "atomic"}}),
        );
    }),
    ("another list", false, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
        );
    }),
    ("text that is a set", false, |crd| {
        field(
            crd,
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
        );
    }),
    ("a list that is a map", true, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}}),
        );
    }),
    ("a map whose key may be missing", false, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
        );
    }),
    ("a map with an unknown key", false, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"], "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
        );
    }),
    ("a map without keys", false, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
        );
    }),
    ("a map of text", false, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "string"}}),
        );
    }),
    ("keys of a set", false, |crd| {
        field(
            crd,
            json!({"type": "array", "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "string"}}),
        );
    }),
    ("another map type", false, |crd| {
        field(
            crd,
            json!({"type": "object", "x-kubernetes-map-type": "loose"}),
        );
    }),
];
