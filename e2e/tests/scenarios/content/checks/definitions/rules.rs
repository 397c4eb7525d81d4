//! Defaults, and rules in CEL.

use serde_json::json;

use super::{Case, field, schema, spec};

/// Name, expected result, and change of the definition.
pub(super) const CASES: &[Case] = &[
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
