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
