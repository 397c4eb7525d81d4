//! That `build` says of definitions and custom resources what a real API server says of them: each case is put to both.
//! What the messages are is in the unit tests of `bundle_core::check`.

use bundle_core::check;
use bundle_core::diagnostic::{Finding, Severity};
use bundle_core::format::{self, Files};
use e2e::cluster::shared;
use e2e::{Cluster, wait};
use futures::{StreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};

/// Cases on which the two differ, and why.
const DIFFER: &[(&str, &str)] = &[
    (
        "a rule that costs too much",
        "only the server estimates the cost of rules",
    ),
    (
        "a rule that compares a number with text",
        "our evaluator knows no types before it has values",
    ),
    (
        "a rule without a yes or no",
        "our evaluator knows no types before it has values",
    ),
];

type Change = fn(&mut Value);

/// A definition that everybody takes.
fn definition() -> Value {
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

/// The schema of `spec`.
fn spec(crd: &mut Value) -> &mut Value {
    &mut schema(crd)["properties"]["spec"]
}

/// The schema of a field of `spec`.
fn field(crd: &mut Value, value: Value) {
    spec(crd)["properties"]["field"] = value;
}

const DEFINITIONS: &[(&str, bool, Change)] = &[
    ("as it is", true, |_| {}),
    ("a name that is not plural and group", false, |crd| {
        crd["metadata"]["name"] = json!("shop.checks.example.com");
    }),
    ("a group without a dot", false, |crd| {
        crd["spec"]["group"] = json!("checks");
        crd["metadata"]["name"] = json!("shops.checks");
    }),
    ("a group of the community", false, |crd| {
        crd["spec"]["group"] = json!("checks.k8s.io");
        crd["metadata"]["name"] = json!("shops.checks.k8s.io");
    }),
    ("a group of the community, not approved", true, |crd| {
        crd["spec"]["group"] = json!("checks.k8s.io");
        crd["metadata"] = json!({"name": "shops.checks.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}});
    }),
    ("another scope", false, |crd| {
        crd["spec"]["scope"] = json!("Global");
    }),
    ("no scope", false, |crd| {
        drop(crd["spec"].as_object_mut().unwrap().remove("scope"));
    }),
    ("a plural in capitals", false, |crd| {
        crd["spec"]["names"]["plural"] = json!("Shops");
    }),
    ("a short name with a dot", false, |crd| {
        crd["spec"]["names"]["shortNames"] = json!(["s.h"]);
    }),
    ("kind and listKind the same", false, |crd| {
        crd["spec"]["names"]["listKind"] = json!("Shop");
    }),
    ("names that the server makes", true, |crd| {
        crd["spec"]["names"] = json!({"plural": "shops", "kind": "Shop"});
    }),
    ("no stored version", false, |crd| {
        crd["spec"]["versions"][0]["storage"] = json!(false);
    }),
    ("two stored versions", false, |crd| {
        let mut second = crd["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    }),
    ("a version twice", false, |crd| {
        let mut second = crd["spec"]["versions"][0].clone();
        second["storage"] = json!(false);
        crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    }),
    ("two versions", true, |crd| {
        let mut second = crd["spec"]["versions"][0].clone();
        second["storage"] = json!(false);
        second["name"] = json!("v2alpha1");
        crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    }),
    ("a version with a dot", false, |crd| {
        crd["spec"]["versions"][0]["name"] = json!("v1.0");
    }),
    ("served as text", false, |crd| {
        crd["spec"]["versions"][0]["served"] = json!("true");
    }),
    ("an unknown field", false, |crd| {
        crd["spec"]["versions"][0]["stored"] = json!(true);
    }),
    ("nothing served", true, |crd| {
        crd["spec"]["versions"][0]["served"] = json!(false);
    }),
    ("no schema", false, |crd| {
        drop(
            crd["spec"]["versions"][0]
                .as_object_mut()
                .unwrap()
                .remove("schema"),
        );
    }),
    ("preserveUnknownFields", false, |crd| {
        crd["spec"]["preserveUnknownFields"] = json!(true);
    }),
    ("a deprecation without being deprecated", false, |crd| {
        crd["spec"]["versions"][0]["deprecationWarning"] = json!("old");
    }),
    ("a deprecation", true, |crd| {
        crd["spec"]["versions"][0]["deprecated"] = json!(true);
        crd["spec"]["versions"][0]["deprecationWarning"] = json!("old");
    }),
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
    ("a default", true, |crd| {
        field(
            crd,
            json!({"type": "string", "default": "a", "enum": ["a", "b"]}),
        );
    }),
    ("a default of another type", false, |crd| {
        field(crd, json!({"type": "string", "default": 1}));
    }),
    ("a default beyond the limits", false, |crd| {
        field(crd, json!({"type": "integer", "maximum": 3, "default": 4}));
    }),
    ("a default with unknown fields", false, |crd| {
        field(
            crd,
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": "x"}}),
        );
    }),
    ("a default that lacks a field", false, |crd| {
        field(
            crd,
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "default": {}}),
        );
    }),
    ("a default that a default completes", false, |crd| {
        field(
            crd,
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "default": "x"}}, "default": {}}),
        );
    }),
    ("a default against a rule", false, |crd| {
        field(
            crd,
            json!({"type": "integer", "default": 4, "x-kubernetes-validations": [{"rule": "self < 4"}]}),
        );
    }),
    ("a default of null", true, |crd| {
        field(
            crd,
            json!({"type": "string", "nullable": true, "default": null}),
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
    ("a column", true, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
    }),
    ("a column of another type", false, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "int", "jsonPath": ".spec.size"}]);
    }),
    ("a column without a dot", false, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer", "jsonPath": "spec.size"}]);
    }),
    ("a column without path", false, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer"}]);
    }),
    ("scale", true, |crd| {
        crd["spec"]["versions"][0]["subresources"]["scale"] =
            json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
    }),
    ("scale elsewhere", false, |crd| {
        crd["spec"]["versions"][0]["subresources"]["scale"] =
            json!({"specReplicasPath": ".size", "statusReplicasPath": ".status.size"});
    }),
    ("fields to select by", true, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    }),
    ("unknown fields to select by", false, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.nope"}]);
    }),
    ("objects to select by", false, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec"}]);
    }),
    ("a field to select by twice", false, |crd| {
        crd["spec"]["versions"][0]["selectableFields"] =
            json!([{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.size"}]);
    }),
    (
        "a webhook",
        true,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "/convert"}}}}),
    ),
    (
        "a webhook nowhere",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {}}}),
    ),
    (
        "a webhook in two places",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example.com", "service": {"name": "a", "namespace": "b"}}}}),
    ),
    (
        "a webhook by plain HTTP",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "http://a.example.com"}}}),
    ),
    (
        "a webhook of another age",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v2"], "clientConfig": {"url": "https://a.example.com"}}}),
    ),
    (
        "a webhook without strategy",
        false,
        |crd| crd["spec"]["conversion"] = json!({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example.com"}}}),
    ),
    ("another strategy", false, |crd| {
        crd["spec"]["conversion"] = json!({"strategy": "Magic"});
    }),
    (
        "a rule",
        true,
        |crd| spec(crd)["x-kubernetes-validations"] = json!([{"rule": "!has(self.size) || self.size > 0", "message": "more", "reason": "FieldValueInvalid", "fieldPath": ".size"}]),
    ),
    ("a rule about metadata", true, |crd| {
        schema(crd)["x-kubernetes-validations"] =
            json!([{"rule": "self.metadata.name.size() < 10"}]);
    }),
    ("a rule that cannot be read", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "self.size >"}]);
    }),
    ("a rule about nothing", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": ""}]);
    }),
    ("a rule about an unknown field", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "self.sise > 0"}]);
    }),
    ("a rule with an unknown variable", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "object.size > 0"}]);
    }),
    ("a rule with an unknown function", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "self.name.shout() == 'A'"}]);
    }),
    ("a rule that compares a number with text", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "self.size == 'a'"}]);
    }),
    ("a rule without a yes or no", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "self.size"}]);
    }),
    ("a rule that costs too much", false, |crd| {
        field(
            crd,
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, self.all(c, a + b != c)))"}]}),
        );
    }),
    ("a rule with another reason", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "true", "reason": "Because"}]);
    }),
    ("a rule in lines without message", false, |crd| {
        spec(crd)["x-kubernetes-validations"] =
            json!([{"rule": "self.size > 0 &&\nself.size < 9"}]);
    }),
    ("a rule about another place", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "true", "fieldPath": ".nope"}]);
    }),
    ("a rule about a change", true, |crd| {
        spec(crd)["x-kubernetes-validations"] =
            json!([{"rule": "self == oldSelf", "message": "it is immutable"}]);
    }),
    ("a rule about a change within a list", false, |crd| {
        field(
            crd,
            json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        );
    }),
    ("an optional old value that is not used", false, |crd| {
        spec(crd)["x-kubernetes-validations"] = json!([{"rule": "true", "optionalOldSelf": true}]);
    }),
    (
        "an optional old value",
        true,
        |crd| spec(crd)["x-kubernetes-validations"] = json!([{"rule": "!oldSelf.hasValue() || oldSelf.value() == self", "optionalOldSelf": true}]),
    ),
    ("rules with the libraries", true, |crd| {
        spec(crd)["properties"]["name"]["maxLength"] = json!(50);
        spec(crd)["x-kubernetes-validations"] = json!([
            {"rule": "!has(self.name) || (isURL(self.name) && url(self.name).getHost() == 'a') || isQuantity(self.name) || isIP(self.name) || isCIDR(self.name) || isSemver(self.name)"},
            {"rule": "!has(self.name) || self.name.split('-').all(p, p.matches('^[a-z]+$')) || self.name.upperAscii().find('A') == ''"},
            {"rule": "!has(self.name) || !format.dns1123Label().validate(self.name).hasValue() || sets.contains([1], [1])"},
        ]);
    }),
];

/// The definition that the objects are of.
fn rich() -> Value {
    let mut crd = definition();
    crd["metadata"]["name"] = json!("goods.checks.example.com");
    crd["spec"]["names"] = json!({"plural": "goods", "kind": "Good"});
    *spec(&mut crd) = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 8, "pattern": r"^\w+$"},
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMaximum": true, "default": 3},
        "small": {"type": "integer", "format": "int32"},
        "even": {"type": "integer", "multipleOf": 2},
        "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
        "on": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "maybe": {"type": "string", "nullable": true},
        "maybe_mode": {"type": "string", "nullable": true, "enum": ["a", "b"]},
        "either": {"x-kubernetes-int-or-string": true},
        "tags": {"type": "array", "maxItems": 3, "minItems": 1, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}},
        "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "maxLength": 3}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "no": {"type": "string", "not": {"enum": ["x"]}},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "ip": {"type": "string", "format": "ipv4"},
        "uuid": {"type": "string", "format": "uuid"},
        "data": {"type": "string", "format": "byte"},
        "wait": {"type": "string", "format": "duration"},
        "link": {"type": "string", "format": "uri"},
        "colour": {"type": "string", "format": "colour"},
        "min": {"type": "integer"}, "max": {"type": "integer"},
        "memory": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "quantity(self).isLessThan(quantity('1Gi'))"}]},
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        "some_name": {"type": "string", "maxLength": 20},
        "namespace": {"type": "string", "maxLength": 20},
    }, "x-kubernetes-validations": [
        {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min is more than max"},
        {"rule": "self.size != 7", "messageExpression": "'not seven'"},
        {"rule": "!has(self.some_name) || self.some_name.startsWith('x')"},
        {"rule": "!has(self.__namespace__) || self.__namespace__ != 'bad'"},
        {"rule": "!has(self.at) || self.at > timestamp('2020-01-01T00:00:00Z')"},
        {"rule": "!has(self.wait) || self.wait < duration('1h')"},
        {"rule": "!has(self.labels) || !('a.b/c' in self.labels)"},
        {"rule": "!has(self.ratio) || self.ratio < 100.0"},
    ]});
    crd
}

/// What is put into `spec` of a good object, and whether the server takes it.
const OBJECTS: &[(&str, bool, Change)] = &[
    ("as it is", true, |_| {}),
    ("no name", false, |good| {
        drop(good["spec"].as_object_mut().unwrap().remove("name"));
    }),
    ("no spec", true, |good| {
        drop(good.as_object_mut().unwrap().remove("spec"));
    }),
    ("a name too short", false, |good| {
        good["spec"]["name"] = json!("a");
    }),
    ("a name too long", false, |good| {
        good["spec"]["name"] = json!("abcdefghi");
    }),
    ("a name of few long letters", false, |good| {
        good["spec"]["name"] = json!("ééé");
    }),
    ("a name as a number", false, |good| {
        good["spec"]["name"] = json!(12);
    }),
    ("an unknown field", false, |good| {
        good["spec"]["nmae"] = json!("a");
    }),
    ("an unknown field beside spec", false, |good| {
        good["sepc"] = json!({});
    }),
    ("an unknown field of metadata", false, |good| {
        good["metadata"]["lables"] = json!({"a": "b"});
    }),
    ("a size too large", false, |good| {
        good["spec"]["size"] = json!(10);
    }),
    ("a size as text", false, |good| {
        good["spec"]["size"] = json!("3");
    }),
    ("a size that is a fraction", false, |good| {
        good["spec"]["size"] = json!(2.5);
    }),
    ("a size of null", true, |good| {
        good["spec"]["size"] = json!(null);
    }),
    ("a size that a rule forbids", false, |good| {
        good["spec"]["size"] = json!(7);
    }),
    ("more than 32 bits", false, |good| {
        good["spec"]["small"] = json!(3_000_000_000_u64);
    }),
    ("an odd number", false, |good| {
        good["spec"]["even"] = json!(3);
    }),
    ("an even number", true, |good| {
        good["spec"]["even"] = json!(4);
    }),
    ("a ratio that is whole", true, |good| {
        good["spec"]["ratio"] = json!(1);
    }),
    ("a ratio of nothing", false, |good| {
        good["spec"]["ratio"] = json!(0);
    }),
    ("a ratio that a rule forbids", false, |good| {
        good["spec"]["ratio"] = json!(200);
    }),
    ("on as text", false, |good| {
        good["spec"]["on"] = json!("yes");
    }),
    ("another mode", false, |good| {
        good["spec"]["mode"] = json!("c");
    }),
    ("null where it may be", true, |good| {
        good["spec"]["maybe"] = json!(null);
    }),
    ("null where it may be, beside modes", false, |good| {
        good["spec"]["maybe_mode"] = json!(null);
    }),
    ("null where it may not be", true, |good| {
        good["spec"]["mode"] = json!(null);
    }),
    ("a number of both", true, |good| {
        good["spec"]["either"] = json!(1);
    }),
    ("a text of both", true, |good| {
        good["spec"]["either"] = json!("50%");
    }),
    ("neither of both", false, |good| {
        good["spec"]["either"] = json!(true);
    }),
    ("no tags", false, |good| good["spec"]["tags"] = json!([])),
    ("many tags", false, |good| {
        good["spec"]["tags"] = json!(["a", "b", "c", "d"]);
    }),
    ("a tag twice", false, |good| {
        good["spec"]["tags"] = json!(["a", "a"]);
    }),
    ("a tag of null", false, |good| {
        good["spec"]["tags"] = json!([null]);
    }),
    ("tags that are none", false, |good| {
        good["spec"]["tags"] = json!({"a": "b"});
    }),
    ("a port twice", false, |good| {
        good["spec"]["ports"] = json!([{"port": 1, "protocol": "TCP"}, {"port": 1}]);
    }),
    ("a port with two protocols", true, |good| {
        good["spec"]["ports"] = json!([{"port": 1, "protocol": "UDP"}, {"port": 1}]);
    }),
    ("a port without number", false, |good| {
        good["spec"]["ports"] = json!([{"protocol": "UDP"}]);
    }),
    ("an unknown field of a port", false, |good| {
        good["spec"]["ports"] = json!([{"port": 1, "proto": "UDP"}]);
    }),
    ("labels", true, |good| {
        good["spec"]["labels"] = json!({"a": "b"});
    }),
    ("many labels", false, |good| {
        good["spec"]["labels"] = json!({"a": "b", "c": "d", "e": "f"});
    }),
    ("a long label", false, |good| {
        good["spec"]["labels"] = json!({"a": "bbbb"});
    }),
    ("a label as a number", false, |good| {
        good["spec"]["labels"] = json!({"a": 1});
    }),
    ("a label that a rule forbids", false, |good| {
        good["spec"]["labels"] = json!({"a.b/c": "x"});
    }),
    ("free fields", true, |good| {
        good["spec"]["free"] = json!({"a": "x", "b": {"c": 1}});
    }),
    ("free fields but one", false, |good| {
        good["spec"]["free"] = json!({"a": 1});
    }),
    ("an object within", true, |good| {
        good["spec"]["embedded"] = json!({"apiVersion": "v1", "kind": "Pod", "spec": {}});
    }),
    ("an object within without kind", false, |good| {
        good["spec"]["embedded"] = json!({"apiVersion": "v1"});
    }),
    ("one of two", true, |good| {
        good["spec"]["one"] = json!({"a": "x"});
    }),
    ("both of two", false, |good| {
        good["spec"]["one"] = json!({"a": "x", "b": "y"});
    }),
    ("none of two", false, |good| good["spec"]["one"] = json!({})),
    ("what it must not be", false, |good| {
        good["spec"]["no"] = json!("x");
    }),
    ("a time", true, |good| {
        good["spec"]["at"] = json!("2024-02-29T10:00:00Z");
    }),
    ("a time that is none", false, |good| {
        good["spec"]["at"] = json!("2024-02-29 10:00");
    }),
    ("a time that a rule forbids", false, |good| {
        good["spec"]["at"] = json!("2019-02-28T10:00:00Z");
    }),
    ("a day", true, |good| {
        good["spec"]["day"] = json!("2024-02-29");
    }),
    ("a day that is none", false, |good| {
        good["spec"]["day"] = json!("2023-02-29");
    }),
    ("an address", true, |good| {
        good["spec"]["ip"] = json!("10.0.0.1");
    }),
    ("an address that is none", false, |good| {
        good["spec"]["ip"] = json!("10.0.0");
    }),
    ("a UUID", true, |good| {
        good["spec"]["uuid"] = json!("123e4567-e89b-12d3-a456-426614174000");
    }),
    ("a UUID that is none", false, |good| {
        good["spec"]["uuid"] = json!("123e4567");
    }),
    ("bytes", true, |good| good["spec"]["data"] = json!("aGk=")),
    ("bytes that are none", false, |good| {
        good["spec"]["data"] = json!("a!");
    }),
    ("a duration", true, |good| {
        good["spec"]["wait"] = json!("30m");
    }),
    ("a duration that is none", false, |good| {
        good["spec"]["wait"] = json!("long");
    }),
    ("a duration that a rule forbids", false, |good| {
        good["spec"]["wait"] = json!("2h");
    }),
    ("a link", true, |good| {
        good["spec"]["link"] = json!("https://example.com/a");
    }),
    ("a link that is none", false, |good| {
        good["spec"]["link"] = json!("example");
    }),
    ("an unknown format", true, |good| {
        good["spec"]["colour"] = json!("any");
    }),
    ("min more than max", false, |good| {
        good["spec"]["min"] = json!(3);
        good["spec"]["max"] = json!(2);
    }),
    ("min alone", true, |good| good["spec"]["min"] = json!(3)),
    ("little memory", true, |good| {
        good["spec"]["memory"] = json!("512Mi");
    }),
    ("much memory", false, |good| {
        good["spec"]["memory"] = json!("2Gi");
    }),
    ("memory that is none", false, |good| {
        good["spec"]["memory"] = json!("lots");
    }),
    ("a rule about changes", true, |good| {
        good["spec"]["fixed"] = json!("a");
    }),
    ("a field with an underscore", true, |good| {
        good["spec"]["some_name"] = json!("xy");
    }),
    (
        "a field with an underscore that a rule forbids",
        false,
        |good| good["spec"]["some_name"] = json!("y"),
    ),
    (
        "a word of the language that a rule forbids",
        false,
        |good| good["spec"]["namespace"] = json!("bad"),
    ),
    ("any status", true, |good| good["status"] = json!({"x": 1})),
    ("another version", false, |good| {
        good["apiVersion"] = json!("checks.example.com/v2");
    }),
];

fn good() -> Value {
    json!({"apiVersion": "checks.example.com/v1", "kind": "Good", "metadata": {"name": "a", "namespace": "default"}, "spec": {"name": "abc"}})
}

/// What `build` says of these objects, as errors and as what it could not check.
fn ours(objects: &[&Value]) -> (Vec<String>, Vec<String>) {
    let package = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\n";
    let mut files = Files::from([("bundle.yaml".to_owned(), package.as_bytes().to_vec())]);
    for (index, object) in objects.iter().enumerate() {
        files.insert(
            format!("manifests/{index}.json"),
            object.to_string().into_bytes(),
        );
    }
    let said = |findings: &[Finding], severity: Severity| -> Vec<String> {
        let found = findings.iter().filter(|finding| {
            finding.severity == severity
                && (severity == Severity::Error || finding.message.starts_with("not checked"))
        });
        found.map(ToString::to_string).collect()
    };
    let findings = match format::read(&files) {
        Ok(content) => check::all(&content, &files),
        Err(findings) => findings,
    };
    (
        said(&findings.0, Severity::Error),
        said(&findings.0, Severity::Warning),
    )
}

/// What the server says of an object that is created without being kept.
async fn theirs(client: &Client, path: &str, object: &Value) -> Result<(), String> {
    let request = http::Request::post(format!("{path}?dryRun=All&fieldValidation=Strict"))
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    match client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Puts each case to both, and lists on which they differ.
async fn compare(
    client: &Client,
    path: &str,
    base: &Value,
    table: &[(&'static str, bool, Change)],
    beside: &[Value],
) {
    let cases = stream::iter(table).map(|(name, fine, change)| async move {
        let mut object = base.clone();
        change(&mut object);
        let path = match object["apiVersion"].as_str() {
            Some("checks.example.com/v2") => path.replace("/v1/", "/v2/"),
            _ => path.to_owned(),
        };
        let objects: Vec<&Value> = beside.iter().chain([&object]).collect();
        let (errors, unchecked) = ours(&objects);
        let theirs = theirs(client, &path, &object).await;
        let mut wrong = Vec::new();
        if theirs.is_ok() != *fine {
            wrong.push(format!("{name}: the server did not do what we thought: {theirs:?}"));
        }
        let known = DIFFER.iter().any(|(case, _)| case == name);
        if (errors.is_empty() == theirs.is_ok()) == known {
            wrong.push(format!("{name}: the server says {theirs:?}, and we say {errors:?}, not checked: {unchecked:?}"));
        }
        if !unchecked.is_empty() && !known {
            wrong.push(format!("{name}: not checked: {unchecked:?}"));
        }
        wrong
    });
    let wrong: Vec<String> = cases.buffered(8).collect::<Vec<_>>().await.concat();
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        table.len(),
        wrong.join("\n")
    );
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_judged_as_the_server_judges_them() {
    let cluster = shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    compare(&client, CRDS, &definition(), DEFINITIONS, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_are_judged_as_the_server_judges_them() {
    let cluster = shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    install(&cluster, &client).await;
    let path = "/apis/checks.example.com/v1/namespaces/default/goods";
    compare(&client, path, &good(), OBJECTS, &[rich()]).await;
}

async fn install(cluster: &Cluster, client: &Client) {
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let made = kubectl
        .args(["create", "-f", "-"])
        .stdin(rich().to_string())
        .output()
        .await
        .unwrap();
    made.success().unwrap();
    let path = "/apis/checks.example.com/v1/namespaces/default/goods";
    wait::until(
        std::time::Duration::from_secs(30),
        "goods are served",
        || async {
            let served = theirs(client, path, &good()).await;
            Ok(served.is_ok().then_some(()))
        },
    )
    .await
    .unwrap();
}
