//! Equal specs parse to equal values, also if any of their fields are absent, null or empty.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::same;
use crate::review::deployment::Template;
use crate::review::{CheckedApprovalSpec, CheckedBundleSpec, CheckedDeploymentSpec, Class};

const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// Parses a spec, and returns all parsed values as text; `None` if the spec is invalid.
type Read<'a> = &'a dyn Fn(&Value) -> Option<String>;

/// Generates empty values. `None` means that the field is absent.
fn empty() -> impl Strategy<Value = Option<Value>> {
    prop::sample::select(vec![
        None,
        Some(Value::Null),
        Some(json!("")),
        Some(json!([])),
        Some(json!({})),
        Some(json!({"a": null, "b": {"c": []}})),
    ])
}

fn bundle(member: &str) -> Value {
    let source = json!({
        "image": {"ref": "registry.example.com/web:1", "pullSecret": "regcred"},
        "git": {
            "repository": "https://git.example.com/web.git", "directory": "./manifests",
            "ref": {"branch": "main"}, "auth": {"secret": {"name": "login"}, "insecureSkipVerify": true},
        },
        "configMaps": [{"configMap": {"name": "web"}, "path": "manifests"}],
        "http": {"url": "https://files.example.com/web.tgz", "auth": {"secret": {"name": "login"}, "insecureSkipVerify": true}},
        "upload": {},
    });
    json!({"provisionerClassName": "plain", "source": {"type": member, member: source[member]}})
}

fn deployment() -> Value {
    json!({
        "provisionerClassName": "plain",
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"note": "x"}, "finalizers": ["a"], "name": "n", "namespace": "m"},
            "spec": bundle("image"),
        },
        "config": {"replicas": 2, "text": ""},
        "serviceAccount": {"namespace": "team-a", "name": "deployer"},
        "targetNamespace": "web",
        "createNamespace": true,
        "paused": true,
        "collision": "Adopt",
        "drift": {"mode": "Report", "ignore": [{"kind": "Deployment.apps", "namespace": "team-a", "name": "web", "fields": ["/spec/replicas"], "manager": "hpa"}]},
        "rollout": {"deadline": "1m", "onFailure": "RollBack", "waitFor": "Ready", "history": 3, "allowDowngrade": true, "allowOtherPackage": true, "versions": "^1.4", "replace": "Never"},
        "deletion": {"objects": "Orphan", "customResources": "Delete"},
        "kubernetes": {"unsupported": "Accept"},
        "crdUpgrades": {"exceptions": [{"crd": "a.example.com", "check": "Enum", "reason": "r"}]},
    })
}

fn approval() -> Value {
    json!({"bundleDeployment": {"name": "web", "uid": "u", "generation": 3}, "digest": DIGEST, "reason": "change 7"})
}

fn class() -> Value {
    json!({
        "provisioner": "core.rukpak.io/plain",
        "parameters": {"a": "b"},
        "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
        "authorization": "Class",
        "approval": {"mode": "Required", "by": "AnotherPerson"},
        "signatures": "Required",
        "sources": {"types": ["image"], "hosts": ["registry.example.com"], "privateAddresses": "Allow", "insecureHosts": ["registry.example.com"], "pullSecrets": ["login"]},
        "targets": {"namespaces": ["team-*"], "clusterScoped": "Deny"},
    })
}

/// Adds JSON pointers to all fields and items in `value`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut each = |key: &str, value: &Value| {
        let path = format!("{at}/{key}");
        found.push(path.clone());
        pointers(value, &path, found);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| each(key, value)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                each(&index.to_string(), item);
            }
        }
        _ => {}
    }
}

/// Replaces the value at `pointer` by `empty`. `None` removes the value.
fn put(spec: &mut Value, pointer: &str, empty: Option<Value>) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return;
    };
    match (spec.pointer_mut(parent), empty) {
        (Some(Value::Object(members)), Some(value)) => {
            members.insert(key.to_owned(), value);
        }
        (Some(Value::Object(members)), None) => {
            members.remove(key);
        }
        (Some(Value::Array(items)), empty) => {
            if let Some(item) = key.parse().ok().and_then(|key: usize| items.get_mut(key)) {
                *item = empty.unwrap_or_default();
            }
        }
        _ => {}
    }
}

/// Generates two specs of one kind. The same fields are empty in both specs, but a field can be
/// absent in one spec, and null or empty in the other spec.
fn pairs(full: Value) -> impl Strategy<Value = (Value, Value)> {
    let mut all = Vec::new();
    pointers(&full, "", &mut all);
    // The spec has one source. A user may set the fields of the other sources to empty values.
    for member in ["image", "git", "configMaps", "http", "upload"] {
        all.push(format!("/source/{member}"));
        all.push(format!("/template/spec/source/{member}"));
    }
    let places = prop::collection::vec((prop::sample::select(all), empty(), empty()), 1..5);
    places.prop_map(move |places| {
        let (mut left, mut right) = (full.clone(), full.clone());
        for (pointer, one, other) in places {
            put(&mut left, &pointer, one);
            put(&mut right, &pointer, other);
        }
        (left, right)
    })
}

fn agree<T: PartialEq + std::fmt::Debug>(
    (left, right): &(Value, Value),
    parse: impl Fn(&Value) -> Option<T>,
) -> Result<(), TestCaseError> {
    if same(left, right) {
        prop_assert_eq!(parse(left), parse(right), "{} and {}", left, right);
    }
    Ok(())
}

fn read_deployment(spec: &Value) -> Option<impl PartialEq + std::fmt::Debug + use<>> {
    let parsed = CheckedDeploymentSpec::parse(spec).ok()?;
    Some((parsed, Template::metadata(spec)))
}

proptest! {
    #[test]
    fn equal_bundle_specs_parse_to_equal_values(
        pair in prop::sample::select(vec!["image", "git", "configMaps", "http", "upload"]).prop_flat_map(|member| pairs(bundle(member)))
    ) {
        agree(&pair, |spec| CheckedBundleSpec::parse(spec).ok())?;
    }

    #[test]
    fn equal_deployment_specs_parse_to_equal_values(pair in pairs(deployment())) {
        agree(&pair, read_deployment)?;
    }

    #[test]
    fn equal_approval_specs_parse_to_equal_values(pair in pairs(approval())) {
        agree(&pair, |spec| CheckedApprovalSpec::parse(spec).ok())?;
    }

    #[test]
    fn equal_class_specs_parse_to_equal_values(pair in pairs(class())) {
        agree(&pair, |spec| Class::parse("plain", spec).ok())?;
    }
}

#[test]
fn null_and_empty_at_every_field_parse_like_absent() {
    let kinds: [(Value, Read<'_>); 5] = [
        (bundle("git"), &|spec| {
            Some(format!("{:?}", CheckedBundleSpec::parse(spec).ok()?))
        }),
        (bundle("http"), &|spec| {
            Some(format!("{:?}", CheckedBundleSpec::parse(spec).ok()?))
        }),
        (deployment(), &|spec| {
            Some(format!("{:?}", read_deployment(spec)?))
        }),
        (approval(), &|spec| {
            Some(format!("{:?}", CheckedApprovalSpec::parse(spec).ok()?))
        }),
        (class(), &|spec| {
            Some(format!("{:?}", Class::parse("plain", spec).ok()?))
        }),
    ];
    for (full, parse) in kinds {
        assert!(parse(&full).is_some(), "{full}");
        let mut all = Vec::new();
        pointers(&full, "", &mut all);
        for pointer in all {
            let mut absent = full.clone();
            put(&mut absent, &pointer, None);
            for form in [json!(null), json!(""), json!([]), json!({})] {
                let mut empty = full.clone();
                put(&mut empty, &pointer, Some(form.clone()));
                if same(&absent, &empty) {
                    assert_eq!(parse(&absent), parse(&empty), "{pointer} = {form}");
                }
            }
        }
    }
}

#[test]
fn empty_allowlists_of_classes_allow_nothing() {
    let mut spec = class();
    spec["sources"]["types"] = json!([]);
    spec["targets"]["namespaces"] = json!([]);
    let class = Class::parse("plain", &spec).unwrap();
    assert_eq!(class.source_types, Some(Vec::new()));
    assert_eq!(class.namespaces, Vec::<String>::new());
    let mut absent = spec.clone();
    put(&mut absent, "/sources/types", None);
    assert!(!same(&spec, &absent));
}
