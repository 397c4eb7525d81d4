//! Valid and invalid custom resources of a CRD whose schema uses every feature.

use serde_json::{Value, json};

use super::Case;
use super::definitions::{definition, spec};

/// Returns the CRD of the custom resources.
pub(super) fn rich() -> Value {
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

/// Cases: name, expected result, and change of a valid object.
pub(super) const OBJECTS: &[Case] = &[
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

pub(super) fn good() -> Value {
    json!({"apiVersion": "checks.example.com/v1", "kind": "Good", "metadata": {"name": "a", "namespace": "default"}, "spec": {"name": "abc"}})
}
