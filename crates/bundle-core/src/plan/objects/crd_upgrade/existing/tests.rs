//! Tables of custom resources, and their validity under a new definition.

use serde_json::json;

use super::*;

const CRD: &str = "jugs.example.com";

fn definition(versions: &[(&str, bool, Value)]) -> Value {
    let versions = versions.iter().map(|(name, served, schema)| {
        json!({"name": name, "served": served, "storage": *name == "v1", "schema": {"openAPIV3Schema": schema}})
    });
    let versions: Vec<Value> = versions.collect();
    json!({"metadata": {"name": CRD}, "spec": {"versions": versions}})
}

/// Returns the schema of an object whose field `spec` has this schema.
fn spec(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": schema}})
}

fn litres(schema: &Value) -> Value {
    spec(&json!({"type": "object", "properties": {"litres": schema}}))
}

/// Returns the lists as texts of the form `read: versions`.
fn listed(live: &Value, new: &Value) -> Vec<String> {
    let lists = lists(live, new).unwrap();
    let lists = lists.iter();
    lists
        .map(|list| format!("{}: {}", list.read, list.versions.join(" ")))
        .collect()
}

#[test]
fn objects_are_read_only_if_valid_objects_may_become_invalid() {
    let whole = || json!({"type": "integer"});
    let one = |schema: &Value| definition(&[("v1", true, litres(schema))]);
    let open = |fields: Value| {
        definition(&[(
            "v1",
            true,
            spec(
                &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": fields}),
            ),
        )])
    };
    for (live, new, expected) in [
        (one(&whole()), one(&whole()), vec![]),
        // Safe changes.
        (
            one(&whole()),
            one(&json!({"type": "integer", "description": "a"})),
            vec![],
        ),
        (
            one(&json!({"type": "integer", "maximum": 3})),
            one(&whole()),
            vec![],
        ),
        (
            one(&whole()),
            definition(&[(
                "v1",
                true,
                spec(
                    &json!({"type": "object", "properties": {"litres": whole(), "colour": {"type": "string"}}}),
                ),
            )]),
            vec![],
        ),
        // Unsafe changes, which an exception allows.
        (
            one(&whole()),
            one(&json!({"type": "integer", "maximum": 3})),
            vec!["v1: v1"],
        ),
        (
            one(&whole()),
            definition(&[("v1", true, spec(&json!({"type": "object"})))]),
            vec!["v1: v1"],
        ),
        // A new field of an object that keeps unknown fields.
        (open(json!({})), open(json!({"a": whole()})), vec!["v1: v1"]),
        (open(json!({"a": {}})), open(json!({"a": {}})), vec![]),
        // A new version, without conversion.
        (
            one(&whole()),
            definition(&[
                ("v1", true, litres(&whole())),
                ("v2", true, litres(&json!({"type": "string"}))),
            ]),
            vec!["v1: v2"],
        ),
        (
            one(&whole()),
            definition(&[
                ("v1", true, litres(&whole())),
                ("v2", true, litres(&whole())),
            ]),
            vec![],
        ),
        // The live definition does not serve `v2`. Therefore the objects are read as `v1`, the
        // storage version.
        (
            definition(&[
                ("v1", true, litres(&whole())),
                ("v2", false, litres(&json!({"type": "string"}))),
            ]),
            definition(&[
                ("v1", true, litres(&json!({"type": "string"}))),
                ("v2", true, litres(&json!({"type": "string"}))),
            ]),
            vec!["v1: v1 v2"],
        ),
        // Versions that are not served any more are not validated.
        (
            definition(&[("v1", true, litres(&whole()))]),
            definition(&[("v1", false, litres(&json!({"type": "string"})))]),
            vec![],
        ),
    ] {
        assert_eq!(listed(&live, &new), expected, "{new}");
    }
}

#[test]
fn annotation_and_conversion_webhook_replace_the_validation() {
    let live = definition(&[("v1", true, litres(&json!({"type": "integer"})))]);
    let string = litres(&json!({"type": "string"}));
    let mut new = definition(&[("v1", true, string.clone())]);
    assert_eq!(listed(&live, &new), ["v1: v1"]);
    new["metadata"]["annotations"] = json!({super::super::ANNOTATION: "false"});
    assert_eq!(listed(&live, &new), Vec::<String>::new());
    let mut new = definition(&[
        ("v1", true, litres(&json!({"type": "integer"}))),
        ("v2", true, string),
    ]);
    assert_eq!(listed(&live, &new), ["v1: v2"]);
    new["spec"]["conversion"] = json!({"strategy": "Webhook"});
    assert_eq!(listed(&live, &new), Vec::<String>::new());
    let mut unserved = live.clone();
    unserved["spec"]["versions"][0]["served"] = false.into();
    new["spec"]["conversion"] = json!({"strategy": "None"});
    assert_eq!(lists(&unserved, &new), Err(Unvalidated::NotServed));
}

#[test]
fn exception_from_the_validation_has_its_own_name() {
    let exception_from = |check| {
        let exceptions = [CrdException {
            crd: CRD.to_owned(),
            check,
            reason: "none exist".to_owned(),
        }];
        exception(CRD, &exceptions).map(str::to_owned)
    };
    assert_eq!(exception_from(CrdCheck::ChangeValidator), None);
    assert_eq!(
        exception_from(CrdCheck::ExistingCustomResources).as_deref(),
        Some("none exist")
    );
}

#[test]
fn message_names_objects_and_fields_but_no_values_and_keys() {
    let schema = json!({"type": "object", "required": ["litres"], "properties": {
        "litres": {"type": "integer", "default": 1, "maximum": 9},
        "owners": {"type": "object", "additionalProperties": {"enum": ["a"]}},
        "colour": {"type": "string"},
    }});
    let new = definition(&[("v1", true, spec(&schema))]);
    let object = |namespace: &str, spec: Value| json!({"metadata": {"namespace": namespace, "name": "jug"}, "spec": spec});
    let versions = ["v1".to_owned()];
    let add = |found: &mut ExistingObjects<'_>, object: &Value, can_be_named: bool| {
        let added = found.add(object, &versions, can_be_named, || Ok(()));
        added.unwrap();
    };
    let mut found = ExistingObjects::new(&new);
    for valid in [
        json!({"litres": 9}),
        // When the API server reads these objects, it adds defaults and removes unknown fields and
        // nulls.
        json!({}),
        json!({"litres": null, "unknown": 1}),
    ] {
        add(&mut found, &object("a", valid), true);
    }
    assert!(found.is_valid());
    for (namespace, spec, can_be_named) in [
        ("a", json!({"litres": 41}), true),
        (
            "b",
            json!({"litres": 1, "owners": {"S3cret": "S3cret"}}),
            true,
        ),
        (
            "hidden",
            json!({"colour": 41, "owners": {"S3cret": "b"}}),
            false,
        ),
        ("hidden", json!({"litres": 41}), false),
    ] {
        add(&mut found, &object(namespace, spec), can_be_named);
    }
    assert!(!found.is_valid());
    assert_eq!(
        found.message(CRD),
        r#"error validating existing CRs against new CRD's schema for "jugs.example.com": existing custom object a/jug failed validation for new schema version v1: ^.spec.litres: maximum; existing custom object b/jug failed validation for new schema version v1: ^.spec.owners[*]: enum; existing custom objects in other namespaces (2) failed validation for new schema version v1: ^.spec.colour: type, ^.spec.litres: maximum, ^.spec.owners[*]: enum"#
    );
    let mut found = ExistingObjects::new(&new);
    for _ in 0..5 {
        add(&mut found, &object("a", json!({"litres": 41})), true);
    }
    assert!(
        found
            .message(CRD)
            .ends_with("; and 2 more existing custom objects")
    );
}

#[test]
fn versions_and_steps_of_the_comparison_are_limited() {
    let names: Vec<String> = (1..=33).map(|number| format!("v{number}")).collect();
    let versions = |count: usize, schema: &Value| {
        let names = names.iter().take(count);
        let versions: Vec<(&str, bool, Value)> = names
            .map(|name| (name.as_str(), true, schema.clone()))
            .collect();
        definition(&versions)
    };
    let any = litres(&json!({}));
    let none = Vec::<String>::new();
    assert_eq!(listed(&versions(1, &any), &versions(32, &any)), none);
    for (live, new) in [(1, 33), (33, 1)] {
        let found = lists(&versions(live, &any), &versions(new, &any));
        assert_eq!(found, Err(Unvalidated::Versions(32)));
    }
    // Each new version is compared with the version on the cluster. No version rejects an object,
    // so no comparison can be omitted.
    let values: Vec<u32> = (0..200_000).collect();
    let live = versions(1, &litres(&json!({"enum": values})));
    assert_eq!(listed(&live, &versions(3, &any)), none);
    let found = lists(&live, &versions(32, &any));
    assert_eq!(found, Err(Unvalidated::Steps));
    assert_eq!(
        found.unwrap_err().to_string(),
        "the comparison with the definition on the cluster needs more than 2000000 steps"
    );
}

#[test]
fn time_is_checked_before_each_version_of_an_object() {
    let schema = || spec(&json!({"type": "object"}));
    let new = definition(&[
        ("v1", true, schema()),
        ("v2", true, schema()),
        ("v3", true, schema()),
    ]);
    let versions = ["v1", "v2", "v3"].map(str::to_owned);
    let late = Unvalidated::Time(Duration::from_secs(30));
    let mut checks = 0;
    let added = ExistingObjects::new(&new).add(&json!({}), &versions, true, || {
        checks += 1;
        if checks == 3 { Err(late) } else { Ok(()) }
    });
    assert_eq!(added, Err(late));
    assert_eq!(checks, 3);
}

/// Error of a validation whose time limit is reached.
const LATE: Unvalidated = Unvalidated::Time(Duration::from_secs(30));

/// Validates an object with the `spec` `object` against the schema of `spec`. Returns true if the
/// object is valid. The check of the time with the number `last` fails.
fn validated(schema: &Value, object: &Value, last: usize) -> Result<bool, Unvalidated> {
    let new = definition(&[("v1", true, spec(schema))]);
    let mut checks = 0;
    let mut found = ExistingObjects::new(&new);
    let check_time = || {
        checks += 1;
        if checks == last { Err(LATE) } else { Ok(()) }
    };
    let object = json!({"spec": object});
    let added = found.add(&object, &["v1".to_owned()], true, check_time);
    added.map(|()| found.is_valid())
}

/// Returns `count` different names of fields.
fn names(count: usize) -> Vec<String> {
    let numbers = 0..count;
    numbers.map(|number| format!("field-{number}")).collect()
}

/// Without the checks of the time within one object, this test would need minutes.
#[test]
fn time_is_checked_within_one_object() {
    let items = || json!(vec![json!({}); 40_000]);
    let fields = names(45_000).into_iter().map(|name| (name, json!({})));
    let fields: serde_json::Map<String, Value> = fields.collect();
    let keys = names(45_000);
    for schema in [
        json!({"items": {"properties": fields}}),
        json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}),
        json!({"items": {"not": {"required": keys}}}),
        json!({"items": {"enum": keys}}),
        json!({"items": {"allOf": vec![json!({}); 10_000]}}),
    ] {
        assert_eq!(validated(&schema, &items(), 50), Err(LATE));
    }
}

/// Without the limit of steps, this test would need more than 20 minutes.
#[test]
fn large_patterns_and_long_texts_are_not_matched() {
    let patterns = (500..546).map(|count| json!({"pattern": format!("[ab]*a[ab]{{{count}}}c")}));
    let patterns: Vec<Value> = patterns.collect();
    let text = |length: usize| json!("ab".repeat(length));
    let schema = json!({"type": "string", "allOf": patterns});
    let found = validated(&schema, &text(650_000), usize::MAX);
    assert_eq!(found, Err(Unvalidated::ObjectSteps(4_000_000)));
    assert_eq!(
        found.unwrap_err().to_string(),
        "the validation of an object needs more than 4000000 steps"
    );
    // Short texts are matched.
    let schema = json!({"type": "string", "pattern": "[ab]*a[ab]{5}$"});
    assert_eq!(validated(&schema, &text(650), usize::MAX), Ok(true));
    assert_eq!(validated(&schema, &text(2), usize::MAX), Ok(false));
}

#[test]
fn repeated_keys_of_lists_do_not_multiply_the_steps() {
    let keys = vec!["n"; 300_000];
    let schema = json!({
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
    });
    let items = |count: usize| {
        let items = (0..count).map(|number| json!({"n": number % 40_000}));
        Value::Array(items.collect())
    };
    assert_eq!(validated(&schema, &items(40_000), usize::MAX), Ok(true));
    assert_eq!(validated(&schema, &items(40_001), usize::MAX), Ok(false));
}
