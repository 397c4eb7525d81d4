//! Rules of `spec.drift.ignore`, and the cost of the largest rules.

use std::cell::Cell;

use serde_json::json;

use super::*;
use crate::object::GroupKind;

thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static COPIES: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn count() {
    STEPS.set(STEPS.get() + 1);
}

pub(super) fn count_copy() {
    COPIES.set(COPIES.get() + 1);
}

/// Returns the number of steps of `work`.
fn steps(work: impl FnOnce()) -> usize {
    STEPS.set(0);
    work();
    STEPS.get()
}

fn id() -> ObjectId {
    ObjectId {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: None,
        name: "web".to_owned(),
    }
}

#[test]
fn rule_matches_kind_namespace_and_name() {
    let rule = Rule {
        kind: Some(GroupKind::parse("Deployment.apps")),
        name: Some("web".to_owned()),
        ..Rule::default()
    };
    assert!(rule.fits(&id()));
    assert!(Rule::default().fits(&id()));
    // A binding must reference the role in the content, because permissions were checked for that
    // role.
    assert!(!Rule::default().fits(&ObjectId {
        group: "rbac.authorization.k8s.io".to_owned(),
        kind: "RoleBinding".to_owned(),
        ..id()
    }));
    assert!(!rule.fits(&ObjectId {
        name: "other".to_owned(),
        ..id()
    }));
    assert!(!rule.fits(&ObjectId {
        group: String::new(),
        ..id()
    }));
}

#[test]
fn ignored_field_keeps_its_live_value() {
    let rule = Rule {
        fields: vec![
            "/spec/replicas".to_owned(),
            "/metadata/annotations/a~1b".to_owned(),
        ],
        ..Rule::default()
    };
    let mut desired =
        json!({ "metadata": { "annotations": { "a/b": "x" } }, "spec": { "replicas": 1 } });
    apply_rules(
        &mut desired,
        &json!({ "spec": { "replicas": 7 } }),
        &[],
        &[&rule],
    );
    assert_eq!(
        desired,
        json!({ "metadata": { "annotations": {} }, "spec": { "replicas": 7 } })
    );
}

#[test]
fn fields_of_an_ignored_manager_are_not_applied() {
    let rule = Rule {
        manager: Some("keda".to_owned()),
        ..Rule::default()
    };
    let fields = json!({
        "f:spec": { "f:replicas": {}, "f:template": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:name": {}, "f:image": {} } } } },
        "f:metadata": { "f:finalizers": { "v:\"x\"": {} } },
    });
    let mut desired = json!({
        "metadata": { "finalizers": ["x", "y"] },
        "spec": { "replicas": 1, "template": { "containers": [{ "name": "c", "image": "i", "tty": true }, { "name": "d", "image": "j" }] } },
    });
    let entry = FieldsEntry {
        manager: "keda",
        operation: "Update",
        subresource: "",
        api_version: "v1",
        time: None,
        fields: &fields,
    };
    apply_rules(&mut desired, &Value::Null, &[entry], &[&rule]);
    assert_eq!(
        desired,
        json!({
            "metadata": { "finalizers": ["y"] },
            "spec": { "template": { "containers": [{ "name": "c", "tty": true }, { "name": "d", "image": "j" }] } },
        })
    );
}

#[test]
fn returns_rules_without_effect() {
    let id = |group: &str, kind: &str| ObjectId {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some("n".to_owned()),
        name: "web".to_owned(),
    };
    let deployment = (
        id("apps", "Deployment"),
        json!({ "spec": { "replicas": 2 } }),
    );
    let binding = (id("rbac.authorization.k8s.io", "Role"), json!({}));
    let objects = [deployment, binding];
    let rule = |kind: &str, fields: &[&str]| Rule {
        kind: Some(GroupKind::parse(kind)),
        fields: fields.iter().map(|&field| field.to_owned()).collect(),
        ..Rule::default()
    };
    let fits_none = "spec.drift.ignore[0] matches no object of the content, or only roles and bindings, to which no rule applies";
    for (rule, expected) in [
        (rule("Deployment.apps", &["/spec/replicas"]), vec![]),
        (rule("Deployment.apps", &[]), vec![]),
        (
            rule("Deployment.apps", &["/spec/replicas", "/spec/paused"]),
            vec!["spec.drift.ignore[0]: no matching object sets /spec/paused"],
        ),
        (rule("StatefulSet.apps", &[]), vec![fits_none]),
        (rule("Role.rbac.authorization.k8s.io", &[]), vec![fits_none]),
    ] {
        let objects: Vec<_> = objects.iter().map(|(id, value)| (id, value)).collect();
        assert_eq!(without_effect(&[rule], &objects), expected);
    }
}

/// Asserts that input of eight times the size needs about eight times the number of steps.
fn assert_linear(work: impl Fn(usize) -> usize) {
    let (small, large) = (work(50), work(400));
    assert!(small >= 50, "{small}");
    assert!(large <= 10 * small, "{small} and {large}");
}

fn of_manager(manager: String) -> Rule {
    Rule {
        manager: Some(manager),
        ..Rule::default()
    }
}

fn owned<'a>(manager: &'a str, fields: &'a Value) -> FieldsEntry<'a> {
    FieldsEntry {
        manager,
        operation: "Apply",
        subresource: "",
        api_version: "v1",
        time: None,
        fields,
    }
}

#[test]
fn cost_is_linear_in_rules_and_entries() {
    assert_linear(|size| {
        let fields = json!({ "f:spec": { "f:replicas": {} } });
        let names: Vec<String> = (0..size).map(|number| format!("m{number}")).collect();
        let rules: Vec<Rule> = names.iter().cloned().map(of_manager).collect();
        let rules: Vec<&Rule> = rules.iter().collect();
        let entries: Vec<_> = names.iter().map(|name| owned(name, &fields)).collect();
        let mut desired = json!({ "spec": { "replicas": 1, "paused": true } });
        let steps = steps(|| apply_rules(&mut desired, &Value::Null, &entries, &rules));
        assert_eq!(desired, json!({ "spec": { "paused": true } }));
        steps
    });
}

#[test]
fn cost_is_linear_in_entries_for_items_of_lists() {
    let rule = of_manager("keda".to_owned());
    let named = |number: usize| json!({ "name": format!("c{number}") });
    assert_linear(|size| {
        // One entry of `managedFields` for each item, and one entry for all items.
        let keys: Vec<String> = (0..size)
            .map(|number| format!("k:{}", named(number)))
            .collect();
        let image = json!({ ".": {}, "f:name": {}, "f:image": {} });
        let mut all: Vec<Value> = (keys.iter())
            .map(|key| json!({ "f:list": { key.as_str(): image } }))
            .collect();
        let every: Map<_, _> = keys.into_iter().map(|key| (key, image.clone())).collect();
        all.push(json!({ "f:list": every }));
        let entries: Vec<_> = all.iter().map(|fields| owned("keda", fields)).collect();
        let items = |more: Value| -> Vec<Value> {
            let item = |number| {
                let mut item = named(number);
                item["tty"] = json!(true);
                if !more.is_null() {
                    item["image"] = more.clone();
                }
                item
            };
            (0..size).map(item).collect()
        };
        let mut desired = json!({ "list": items(json!("i")) });
        let steps = steps(|| apply_rules(&mut desired, &Value::Null, &entries, &[&rule]));
        assert_eq!(desired, json!({ "list": items(Value::Null) }));
        steps
    });
}

#[test]
fn cost_is_linear_in_members_of_sets() {
    let rule = of_manager("keda".to_owned());
    assert_linear(|size| {
        let member = |number: usize| json!(format!("x{number}"));
        let fields: Map<_, _> = (0..size)
            .map(|number| (format!("v:{}", member(number)), json!({})))
            .collect();
        let fields = json!({ "f:list": fields });
        let items: Vec<_> = (0..=size).map(member).collect();
        let mut desired = json!({ "list": items });
        let entries = [owned("keda", &fields)];
        let steps = steps(|| apply_rules(&mut desired, &Value::Null, &entries, &[&rule]));
        assert_eq!(desired, json!({ "list": [member(size)] }));
        steps
    });
}

#[test]
fn items_are_found_by_few_sets_of_names() {
    let rule = of_manager("keda".to_owned());
    let work = |size: usize| {
        // Each key identifies items by a different field. A real schema defines one set of key
        // fields for each list.
        let fields: Map<_, _> = (0..size)
            .map(|number| (format!("k:{{\"n{number}\":1}}"), json!({ "f:image": {} })))
            .collect();
        let fields = json!({ "f:list": fields });
        let mut desired = json!({ "list": vec![json!({ "image": "i" }); size] });
        steps(|| {
            apply_rules(
                &mut desired,
                &Value::Null,
                &[owned("keda", &fields)],
                &[&rule],
            );
        })
    };
    assert_linear(work);
}

#[test]
fn value_that_many_pointers_name_is_copied_once() {
    let live = json!({ "spec": { "a~2b": { "c": [1, 2] }, "d": 1 }, "data": [{ "e": 1 }] });
    let left = |fields: &[&str]| {
        let mut desired = json!({ "spec": { "x": 1 }, "data": [{ "e": 2, "f": 3 }] });
        let rule = Rule {
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
            ..Rule::default()
        };
        COPIES.set(0);
        apply_rules(&mut desired, &live, &[], &[&rule, &rule]);
        (COPIES.get(), desired)
    };
    let whole = json!({ "spec": live["spec"], "data": [{ "e": 2, "f": 3 }] });
    for fields in [
        &["/spec"][..],
        &["/spec", "/spec/d"],
        &["/spec/d", "/spec/a~2b/c/1", "/spec/a~02b", "/spec"],
    ] {
        assert_eq!(left(fields), (1, whole.clone()), "{fields:?}");
    }
    let parts = json!({ "spec": { "x": 1, "a~2b": { "c": [1, 2] } }, "data": [{ "e": 1 }] });
    let fields = [
        "/spec/a~2b",
        "/spec/a~02b",
        "/data/0/e",
        "/data/0/f",
        "/data/7",
    ];
    assert_eq!(left(&fields), (2, parts));
}

#[test]
fn comparisons_with_the_content_are_limited() {
    let rules: Vec<Rule> = (0..1_024)
        .map(|number| Rule {
            fields: (0..4)
                .map(|field| format!("/spec/f{field}/g{number}"))
                .collect(),
            ..Rule::default()
        })
        .collect();
    let value = json!({ "spec": {} });
    let id = id();
    let objects = vec![(&id, &value); 5_000];
    let mut lines = Vec::new();
    let steps = steps(|| lines = without_effect(&rules, &objects));
    assert!(steps < COMPARISONS, "{steps}");
    let last = lines.last().unwrap();
    assert!(last.contains("are not compared with all"), "{last}");
    let few = without_effect(&rules, &objects[..5]);
    assert_eq!(few.len(), 4_096);
}
