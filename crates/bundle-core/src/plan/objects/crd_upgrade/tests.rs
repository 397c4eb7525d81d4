//! Truth table: a change of a definition, and the expected results of the checks.

use serde_json::{Value, json};

use super::*;

const NAME: &str = "widgets.example.com";

/// Returns a definition with one version `v1` of this schema.
fn definition(schema: &Value) -> Value {
    json!({
        "metadata": {"name": NAME},
        "spec": {"scope": "Namespaced", "versions": [version("v1", schema)]},
        "status": {"storedVersions": ["v1"]},
    })
}

fn version(name: &str, schema: &Value) -> Value {
    json!({"name": name, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
}

/// Returns the schema of an object whose field `spec.size` has this schema.
fn size(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": schema}}}})
}

fn found(live: &Value, new: &Value) -> Vec<String> {
    let verdict = compare(live, new, &[]);
    let failures = verdict.failures.into_iter();
    failures
        .map(|failure| format!("{}: {}", failure.check, failure.text))
        .collect()
}

#[test]
fn changes_of_a_field_are_judged_by_their_keyword() {
    for (old, new, expected) in [
        (json!({"type": "integer"}), json!({"type": "integer"}), None),
        // Changes of documentation.
        (
            json!({"type": "integer", "description": "a", "title": "a"}),
            json!({"type": "integer", "description": "b", "example": 1}),
            None,
        ),
        // Changes of the type.
        (
            json!({"type": "integer"}),
            json!({"type": "string"}),
            Some(r#"Type: {field}: type changed from "integer" to "string""#),
        ),
        // Changes of enumerations.
        (json!({"enum": ["a"]}), json!({"enum": ["b", "a"]}), None),
        (json!({"enum": ["a"]}), json!({}), None),
        (json!({"enum": [1]}), json!({"enum": [1.0]}), None),
        (
            json!({"enum": ["a", "b", "c"]}),
            json!({"enum": ["b"]}),
            Some(r#"Enum: {field}: enum values removed: ["a" "c"]"#),
        ),
        (
            json!({}),
            json!({"enum": ["a"]}),
            Some("Enum: {field}: enums added when there were no enum restrictions previously"),
        ),
        // Changes of required fields.
        (json!({"required": ["a"]}), json!({"required": []}), None),
        (
            json!({"required": ["a", "b"]}),
            json!({"required": ["b", "a"]}),
            None,
        ),
        (
            json!({"required": ["a"]}),
            json!({"required": ["c", "a", "b"]}),
            Some("Required: {field}: new required fields added: [b c]"),
        ),
        // Changes of defaults.
        (json!({"default": 1}), json!({"default": 1.0}), None),
        (
            json!({}),
            json!({"default": "a"}),
            Some(
                r#"Default: {field}: default value "\"a\"" added when there was no default previously"#,
            ),
        ),
        (
            json!({"default": false}),
            json!({}),
            Some(r#"Default: {field}: default value "false" removed"#),
        ),
        (
            json!({"default": {}}),
            json!({"default": {"a": 1}}),
            Some(r#"Default: {field}: default value changed from "{}" to "{\"a\":1}""#),
        ),
        // Changes of keywords that no check covers.
        (
            json!({"pattern": "^a$", "x-kubernetes-list-type": "set"}),
            json!({"pattern": "^b$"}),
            Some(
                "UnknownChange: {field} has unknown change, refusing to determine that change is safe (changed: pattern, x-kubernetes-list-type)",
            ),
        ),
        (json!({"nullable": false}), json!({}), None),
        (
            json!({"additionalProperties": true}),
            json!({"additionalProperties": {"type": "string"}}),
            Some(
                "UnknownChange: {field} has unknown change, refusing to determine that change is safe (changed: additionalProperties)",
            ),
        ),
        (
            json!({"items": {"type": "string"}}),
            json!({}),
            Some(
                "UnknownChange: {field} has unknown change, refusing to determine that change is safe (changed: items)",
            ),
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}),
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "false"}]}),
            Some(
                "UnknownChange: {field} has unknown change, refusing to determine that change is safe (changed: x-kubernetes-validations)",
            ),
        ),
    ] {
        let (live, new) = (definition(&size(&old)), definition(&size(&new)));
        let expected: Vec<String> = expected
            .map(|text| text.replace("{field}", r#"version "v1", field "^.spec.size""#))
            .into_iter()
            .collect();
        assert_eq!(found(&live, &new), expected, "{old} {new}");
    }
}

#[test]
fn limits_may_only_become_looser() {
    for (key, name) in [
        ("maximum", "maximum"),
        ("maxItems", "maximum items"),
        ("maxLength", "maximum length"),
        ("maxProperties", "maximum properties"),
        ("minimum", "minimum"),
        ("minItems", "minimum items"),
        ("minLength", "minimum length"),
        ("minProperties", "minimum properties"),
    ] {
        let with = |limit: i32| definition(&size(&json!({key: limit})));
        let without = definition(&size(&json!({})));
        let (looser, stricter) = if key.starts_with("max") {
            (6, 4)
        } else {
            (4, 6)
        };
        assert_eq!(found(&with(5), &with(looser)), [""; 0], "{key}");
        assert_eq!(found(&with(5), &without), [""; 0], "{key}");
        let direction = if key.starts_with("max") {
            "decreased"
        } else {
            "increased"
        };
        let text = found(&with(5), &with(stricter)).join("\n");
        let expected = format!("{name} constraint {direction} from 5 to {stricter}");
        assert!(text.ends_with(&expected), "{text}");
        assert!(
            text.to_lowercase().starts_with(&key.to_lowercase()),
            "{text}"
        );
        let text = found(&without, &with(5)).join("\n");
        let expected = format!("{name} constraint added when one did not exist previously: 5");
        assert!(text.ends_with(&expected), "{text}");
    }
}

#[test]
fn removed_fields_are_found_in_lists_and_maps_and_new_fields_are_safe() {
    let item =
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    let less = json!({"type": "object", "properties": {"b": {"type": "string"}}});
    for schema in [
        json!({"type": "array", "items": item}),
        json!({"type": "object", "additionalProperties": item}),
    ] {
        let text = schema
            .to_string()
            .replace(&item.to_string(), &less.to_string());
        let smaller: Value = serde_json::from_str(&text).unwrap();
        let (more, less) = (definition(&size(&schema)), definition(&size(&smaller)));
        assert_eq!(
            found(&more, &less),
            [
                "NoExistingFieldRemoved: crd/widgets.example.com version/v1 field/^.spec.size[*].a may not be removed"
            ]
        );
        assert_eq!(found(&less, &more), [""; 0]);
    }
    // A removed subtree is reported once.
    let all = definition(&size(&json!({"type": "object"})));
    let none = definition(&json!({"type": "object"}));
    assert_eq!(
        found(&all, &none),
        [
            "NoExistingFieldRemoved: crd/widgets.example.com version/v1 field/^.spec may not be removed"
        ]
    );
}

#[test]
fn scope_versions_and_conversion_are_compared() {
    let schema = size(&json!({"type": "integer"}));
    let live = definition(&schema);
    let with = |pointer: &str, value: Value| {
        let mut new = live.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        new
    };
    assert_eq!(
        found(&live, &with("/spec/scope", json!("Cluster"))),
        [r#"NoScopeChange: scope changed from "Namespaced" to "Cluster""#]
    );
    let renamed = with("/spec/versions", json!([version("v2", &schema)]));
    assert_eq!(
        found(&live, &renamed),
        [r#"NoStoredVersionRemoved: stored version "v1" removed"#]
    );
    // A version that stores no object may be removed. A compatible version may be added.
    let both = with(
        "/spec/versions",
        json!([version("v1", &schema), version("v2", &schema)]),
    );
    assert_eq!(found(&both, &live), [""; 0]);
    assert_eq!(found(&live, &both), [""; 0]);
    // Without conversion, the API server serves objects of the old version as objects of the new
    // version.
    let other =
        json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object"}}});
    let incompatible = with(
        "/spec/versions",
        json!([version("v1", &schema), version("v2", &other)]),
    );
    assert_eq!(
        found(&live, &incompatible),
        [
            r#"ServedVersionValidator: version upgrade "v1" to "v2", field "^": new required fields added: [spec]"#,
            r#"ServedVersionValidator: calculating schema diff between CRD versions "v1" and "v2": field "^.spec.size" in existing not found in new"#,
        ]
    );
    let mut converted = incompatible.clone();
    converted["spec"]["conversion"] = json!({"strategy": "Webhook"});
    assert_eq!(found(&live, &converted), [""; 0]);
    // The definition on the cluster already has differences between its versions. These differences
    // are not reported again.
    assert_eq!(found(&incompatible, &incompatible), [""; 0]);
    assert_eq!(
        found(&converted, &incompatible),
        [
            r#"NoConversionRemoved: conversion strategy changed from "Webhook" to "None", and the versions are [v1 v2]"#
        ]
    );
    converted["spec"]["versions"] = json!([version("v1", &schema)]);
    assert_eq!(found(&converted, &live), [""; 0]);
}

#[test]
fn exceptions_cover_one_check_or_its_group_of_one_definition() {
    let live = definition(&size(&json!({"type": "integer", "maximum": 9})));
    let new = definition(&size(&json!({"type": "string", "maximum": 8})));
    let exception = |crd: &str, check| CrdException {
        crd: crd.to_owned(),
        check,
        reason: "no objects yet".to_owned(),
    };
    for (exceptions, left) in [
        (vec![], vec![CrdCheck::Maximum, CrdCheck::Type]),
        (
            vec![exception(NAME, CrdCheck::Type)],
            vec![CrdCheck::Maximum],
        ),
        (vec![exception(NAME, CrdCheck::ChangeValidator)], vec![]),
        (
            vec![exception("other.example.com", CrdCheck::ChangeValidator)],
            vec![CrdCheck::Maximum, CrdCheck::Type],
        ),
        (
            vec![exception(NAME, CrdCheck::NoExistingFieldRemoved)],
            vec![CrdCheck::Maximum, CrdCheck::Type],
        ),
    ] {
        let verdict = compare(&live, &new, &exceptions);
        assert_eq!(verdict.checks(), left, "{exceptions:?}");
        assert_eq!(verdict.is_safe(), left.is_empty());
        let used = verdict
            .excepted()
            .all(|(_, reason)| reason == "no objects yet");
        assert!(used && verdict.excepted().count() <= 1);
    }
    let mut annotated = new.clone();
    annotated["metadata"]["annotations"] = json!({ANNOTATION: "false"});
    assert!(compare(&live, &annotated, &[]).is_safe());
    annotated["metadata"]["annotations"] = json!({ANNOTATION: "true"});
    assert!(!compare(&live, &annotated, &[]).is_safe());
    // The annotation of the live definition has no effect.
    let mut annotated = live.clone();
    annotated["metadata"]["annotations"] = json!({ANNOTATION: "false"});
    assert!(!compare(&annotated, &new, &[]).is_safe());
}

#[test]
fn messages_have_one_frame_for_each_group_and_are_bounded() {
    let fields = |kind: &str| {
        let fields = (0..40).map(|number| (format!("f{number:02}"), json!({"type": kind})));
        let fields: serde_json::Map<String, Value> = fields.collect();
        json!({"type": "object", "properties": fields})
    };
    let (live, mut new) = (
        definition(&fields("integer")),
        definition(&fields("string")),
    );
    new["spec"]["scope"] = json!("Cluster");
    let verdict = compare(&live, &new, &[]);
    let message = verdict.message(NAME);
    let begin = r#"CustomResourceDefinition widgets.example.com failed upgrade safety validation. "NoScopeChange" validation failed: scope changed from "Namespaced" to "Cluster"; CustomResourceDefinition widgets.example.com failed upgrade safety validation. "ChangeValidator" validation failed: version "v1", field "^.f00": type changed from "integer" to "string"; version "v1", field "^.f01": type"#;
    assert!(message.starts_with(begin), "{message}");
    assert!(message.ends_with("; and 21 more"), "{message}");
    let long = definition(&json!({"type": "object", "properties": {"x".repeat(100_000): {}}}));
    let message = compare(&long, &definition(&json!({"type": "object"})), &[]).message(NAME);
    assert!(message.len() < 1000);
}

#[test]
fn malformed_definitions_are_unsafe() {
    let live = definition(&size(&json!({"type": "integer"})));
    for new in [
        json!({"metadata": {"name": NAME}}),
        definition(&json!("text")),
        definition(&json!([])),
        definition(&json!(null)),
        json!({"metadata": {"name": NAME}, "spec": {"scope": "Namespaced", "versions": "v1"}}),
        json!({"metadata": {"name": NAME}, "spec": {"scope": "Namespaced", "versions": [1, {"name": "v1"}]}}),
        definition(&size(&json!("text"))),
    ] {
        assert!(!compare(&live, &new, &[]).is_safe(), "{new}");
    }
    let versions: Vec<Value> = (0..40)
        .map(|n| version(&format!("v{n}"), &json!({})))
        .collect();
    let mut many = live.clone();
    many["spec"]["versions"] = json!(versions);
    let text = "UnknownChange: 40 versions, and only 32 are compared".to_owned();
    assert!(found(&live, &many).contains(&text));
    assert!(found(&many, &live).contains(&text));
    // An exception that allows the number of versions does not allow other changes.
    many["spec"]["scope"] = json!("Cluster");
    let exception = CrdException {
        crd: NAME.to_owned(),
        check: CrdCheck::UnknownChange,
        reason: "v1 is unchanged".to_owned(),
    };
    let checks = compare(&live, &many, &[exception]).checks();
    assert!(checks.contains(&CrdCheck::NoScopeChange), "{checks:?}");
    assert!(!checks.contains(&CrdCheck::UnknownChange), "{checks:?}");
}

#[test]
fn names_of_checks_are_unique() {
    for (name, check) in CrdCheck::NAMES {
        assert_eq!(CrdCheck::parse(name), Some(check));
        assert_eq!(check.name(), name);
        assert_eq!(check.group().group(), check.group());
    }
    assert_eq!(CrdCheck::parse("noscopechange"), None);
}

#[test]
fn steps_of_the_comparison_of_large_definitions_are_limited() {
    let values: Vec<u32> = (0..200_000).collect();
    let large = size(&json!({"enum": values}));
    let live = definition(&large);
    assert_eq!(found(&live, &live), [""; 0]);
    // Each new version is compared with the large version on the cluster.
    let small = size(&json!({"enum": [1]}));
    let mut new = live.clone();
    let added = (2..=32).map(|number| version(&format!("v{number}"), &small));
    let versions = new["spec"]["versions"].as_array_mut().unwrap();
    versions.extend(added);
    let failures = found(&live, &new);
    let text = "UnknownChange: the comparison with the definition on the cluster needs more than 2000000 steps";
    assert!(failures.iter().any(|found| found == text), "{failures:?}");
    assert!(failures.len() < 10, "{failures:?}");
    let begin = r#"ServedVersionValidator: version upgrade "v1" to "v2", field "^.spec.size": enum values removed: ["#;
    assert!(failures[0].starts_with(begin), "{failures:?}");
    let verdict = compare(&live, &new, &[]);
    assert!(verdict.message(NAME).len() < 10 << 10);
    // Exceptions from other checks do not allow changes that were not compared.
    let exception = CrdException {
        crd: NAME.to_owned(),
        check: CrdCheck::ServedVersionValidator,
        reason: "v1 is not used".to_owned(),
    };
    let checks = compare(&live, &new, &[exception]).checks();
    assert_eq!(checks, [CrdCheck::UnknownChange]);
}

#[test]
fn enumerations_of_mixed_values_are_compared() {
    let old = json!({"enum": [10, 9, 1.5, null, true, "a", [1], {"a": 1}, "a", 10]});
    let new = json!({"enum": [[1.0], {"a": 1}, true, 10.0]});
    let (live, new) = (definition(&size(&old)), definition(&size(&new)));
    let text = r#"Enum: version "v1", field "^.spec.size": enum values removed: ["a" 1.5 9 null]"#;
    assert_eq!(found(&live, &new), [text]);
    assert_eq!(found(&live, &live), [""; 0]);
}
