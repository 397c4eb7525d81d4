//! Valid and invalid CustomResourceDefinitions.

use serde_json::{Value, json};

use super::Case;

/// Returns a valid definition.
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

/// The schema of `spec`.
pub(super) fn spec(crd: &mut Value) -> &mut Value {
    &mut schema(crd)["properties"]["spec"]
}

/// The schema of a field of `spec`.
fn field(crd: &mut Value, value: Value) {
    spec(crd)["properties"]["field"] = value;
}

/// Cases: name, expected result, and change of the definition.
pub(super) const DEFINITIONS: &[Case] = &[
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
