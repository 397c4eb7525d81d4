//! Tests of the comparison of dry runs, and of the kinds with mutating admission.

use serde_json::json;

use super::*;

fn read(value: &Value) -> DryRunObject {
    DryRunObject::parse(value.to_string().as_bytes()).unwrap()
}

/// Compares the first responses for requester and installer. The apply creates the object.
fn first_comparison(requester: &Value, installer: &Value) -> DryRunComparison {
    DryRunComparison::new(false, &read(requester), &read(installer)).unwrap()
}

/// Compares two responses for the requester with two responses for the installer.
fn fields(requester: [&Value; 2], installer: [&Value; 2]) -> Vec<String> {
    let mut comparison = first_comparison(requester[0], installer[0]);
    comparison.add_requester(&read(requester[1])).unwrap();
    comparison.add_installer(&read(installer[1])).unwrap();
    comparison.user_dependent_fields()
}

#[test]
fn changes_besides_the_removed_metadata_are_named_without_values() {
    let removed = RemovedMetadata {
        labels: &["owner"],
        annotations: &["example.com/mark"],
    };
    let object = |labels: Value, annotations: Value, text: &str| {
        json!({
            "kind": "ConfigMap", "data": {"text": text}, "status": {"text": text},
            "metadata": {
                "name": "a", "generation": text.len(), "labels": labels, "annotations": annotations,
            },
        })
    };
    let marked = json!({"example.com/mark": "m"});
    let before = object(json!({"owner": "web"}), marked.clone(), "x");
    let maps = || vec!["metadata.annotations", "metadata.labels"];
    let mut without_maps = object(json!({}), json!({}), "x");
    without_maps["metadata"] = json!({"name": "a"});
    for (after, expected) in [
        (object(json!({}), json!({}), "x"), vec![]),
        (without_maps, vec![]),
        // Mutating admission adds the removed label and the removed annotation again.
        (before.clone(), maps()),
        (object(json!({"owner": "eve"}), marked, "x"), maps()),
        (
            object(json!({"team": "a"}), json!({"note": "n"}), "other"),
            vec!["data.text", "metadata.annotations", "metadata.labels"],
        ),
    ] {
        let found = unexpected_changes(&read(&before), &read(&after), removed);
        assert_eq!(found, expected, "{after}");
    }
    let more = object(json!({"owner": "web", "team": "a"}), json!({}), "x");
    for (labels, expected) in [
        (json!({}), "metadata.labels"),
        (
            json!({"team": "a", "owner": "web"}),
            "metadata.labels.owner",
        ),
    ] {
        let after = object(labels, json!({}), "x");
        let found = unexpected_changes(&read(&more), &read(&after), removed);
        assert_eq!(found, [expected]);
    }
}

#[test]
fn fields_that_depend_on_the_user_are_named_without_values() {
    let with = |labels: Value, spec: Value| {
        json!({
            "kind": "Pod", "metadata": {"name": "a", "uid": "u", "labels": labels, "resourceVersion": "1"}, "spec": spec, "status": {"phase": "x"},
        })
    };
    let requester = with(
        json!({"team": "a", "example.com/x": "1"}),
        json!({"nodeSelector": {"pool": "tenants"}, "list": [1, 2]}),
    );
    let mut installer = with(json!({"team": "a"}), json!({"list": [1, 3, 4]}));
    installer["metadata"]["uid"] = json!("v");
    installer["metadata"]["resourceVersion"] = json!("7");
    installer["status"] = Value::Null;
    assert_eq!(
        fields([&requester; 2], [&installer; 2]),
        [
            "metadata.labels[\"example.com/x\"]",
            "spec.list[1]",
            "spec.list[2]",
            "spec.nodeSelector",
        ]
    );
    let found = fields([&requester, &installer], [&requester, &installer]);
    assert_eq!(found, [""; 0]);
    let first = first_comparison(&requester, &installer);
    assert_eq!(first.user_dependent_fields().len(), 4);
    assert!(!first.varies_for_requester());
}

#[test]
fn random_values_are_ignored_and_missing_fields_are_reported() {
    let with = |address: &str| json!({"spec": {"clusterIP": address}});
    let [one, two, three, four] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"].map(with);
    assert_eq!(fields([&one, &two], [&three, &four]), [""; 0]);
    let none = json!({"spec": {}});
    for (requester, installer) in [
        ([&one, &two], [&none, &none]),
        ([&none, &none], [&one, &two]),
        ([&one, &none], [&two, &three]),
        ([&one, &two], [&three, &none]),
        ([&one, &two], [&three, &json!({})]),
    ] {
        assert_eq!(fields(requester, installer), ["spec.clusterIP"]);
    }
}

#[test]
fn value_of_the_user_with_a_random_part_is_reported() {
    let with = |value: &str| json!({"metadata": {"labels": {"by": value}}});
    let [ana, ana_again] = ["ana 1", "ana 2"].map(with);
    let [installer, installer_again] = ["c", "c 2"].map(with);
    let by = ["metadata.labels.by"];
    assert_eq!(fields([&ana, &ana_again], [&installer; 2]), by);
    assert_eq!(fields([&installer; 2], [&ana, &ana_again]), by);
    // The values for both users have a random part, so they do not prove that the field depends on
    // the user.
    let found = fields([&ana, &ana_again], [&installer, &installer_again]);
    assert_eq!(found, [""; 0]);
    // Without a second response for the installer, the field is still reported.
    let mut comparison = first_comparison(&ana, &installer);
    comparison.add_requester(&read(&ana_again)).unwrap();
    assert_eq!(comparison.user_dependent_fields(), by);
    assert!(comparison.varies_for_requester());
}

#[test]
fn responses_must_have_one_version_if_the_object_exists() {
    let version = |version: &str| json!({"metadata": {"resourceVersion": version}, "a": version});
    let compared = |exists, [first, installer, second]: [&Value; 3]| {
        let mut comparison = DryRunComparison::new(exists, &read(first), &read(installer))?;
        comparison.add_requester(&read(second))?;
        comparison.add_installer(&read(second))
    };
    let (one, two, empty, none) = (version("1"), version("2"), version(""), json!({}));
    for (responses, expected) in [
        ([&one, &one, &one], Ok(())),
        ([&one, &one, &two], Err(ObjectChanged)),
        ([&two, &one, &two], Err(ObjectChanged)),
        ([&one, &none, &one], Err(ObjectChanged)),
        ([&one, &one, &none], Err(ObjectChanged)),
        ([&none, &none, &none], Err(ObjectChanged)),
        ([&empty, &empty, &empty], Err(ObjectChanged)),
    ] {
        assert_eq!(compared(true, responses), expected, "{responses:?}");
        assert_eq!(compared(false, responses), Ok(()), "{responses:?}");
    }
}

#[test]
fn comparison_of_large_fields_needs_little_memory() {
    let with = |letter: &str| json!({"data": {"a": letter.repeat(3 << 20), "b": [letter]}});
    let comparison = first_comparison(&with("x"), &with("y"));
    assert_eq!(comparison.user_dependent_fields(), ["data.a", "data.b[0]"]);
    assert!(format!("{comparison:?}").len() < 4 << 10);
}

#[test]
fn times_that_are_the_same_for_both_users_are_ignored() {
    let with = |second: &str| json!({"metadata": {"annotations": {"at": second}}, "a": second});
    let [one, two, three] = ["10:00:01", "10:00:02", "10:00:03"].map(with);
    for (requester, installer) in [
        ([&one, &two], [&two, &two]),
        ([&one, &three], [&two, &three]),
    ] {
        assert_eq!(fields(requester, installer), [""; 0]);
    }
    // A field is equal in two responses only if its inner fields are equal.
    let with = |value: Value| json!({"a": value});
    let (text, inner, other) = (
        with(json!("x")),
        with(json!({"b": 1})),
        with(json!({"b": 2})),
    );
    assert_eq!(fields([&text, &other], [&inner; 2]), ["a"]);
}

#[test]
fn fields_beyond_the_limit_are_cut_and_never_count_as_none() {
    let many = |value: u32| {
        let fields: serde_json::Map<_, _> = (0..3_000)
            .map(|n| (format!("f{n}"), json!(value)))
            .collect();
        json!({"data": fields})
    };
    let [one, two, three, four] = [1, 2, 3, 4].map(many);
    assert_eq!(fields([&one; 2], [&two; 2]).len(), MAX_FIELDS);
    // All compared fields are random. The only returned text states that the number of different
    // fields exceeds the limit.
    assert_eq!(fields([&one, &two], [&three, &four]).len(), 1);
    let long = |value: u32| {
        let inner: serde_json::Map<_, _> =
            (0..100).map(|n| (format!("f{n}"), json!(value))).collect();
        json!({"data": {"x".repeat(1 << 20): inner}})
    };
    let [one, two] = [1, 2].map(long);
    assert_eq!(fields([&one; 2], [&two; 2]).len(), 1);
    let comparison = first_comparison(&one, &two);
    assert!(comparison.fields.is_empty() && comparison.is_full);
}

#[test]
fn kinds_are_mutated_by_what_is_registered_for_them() {
    let webhook = json!({"kind": "MutatingWebhookConfiguration", "webhooks": [
        {"rules": [{"apiGroups": ["core.rukpak.io"], "resources": ["bundles"]}]},
        {"rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec", "secrets/*", "services/status"]}]},
        {"rules": [{"apiGroups": ["policy.example.com"], "resources": ["*/*"]}, {"apiGroups": ["batch"], "resources": ["*/status"]}]},
    ]});
    let policy = json!({"kind": "MutatingAdmissionPolicy", "spec": {"matchConstraints": {"resourceRules": [
        {"apiGroups": ["apps.example.com"], "resources": ["*"]},
    ]}}});
    let mut kinds = MutatedKinds::default();
    kinds.add(&webhook);
    kinds.add(&policy);
    for (group, resource, expected) in [
        ("", "pods", true),
        ("apps.example.com", "deployments", true),
        ("", "configmaps", false),
        ("", "secrets", true),
        ("", "services", false),
        ("policy.example.com", "poddisruptionbudgets", true),
        ("core.rukpak.io", "bundles", true),
        ("batch", "jobs", false),
    ] {
        assert_eq!(
            kinds.contains(group, resource),
            expected,
            "{group} {resource}"
        );
    }
    kinds.add(&json!({"kind": "MutatingWebhookConfiguration"}));
    assert!(!kinds.contains("batch", "jobs"));
    kinds.add(&json!({"kind": "MutatingAdmissionPolicy", "spec": {}}));
    assert!(kinds.contains("batch", "jobs"));
    assert!(MutatedKinds::unknown().contains("", "configmaps"));
}

#[test]
fn rules_count_for_groups_that_may_be_equivalent() {
    for (groups, resources, group, resource, expected) in [
        // A rule that names the resource matches every group.
        (
            &["extensions"][..],
            &["deployments"][..],
            "apps",
            "deployments",
            true,
        ),
        (&[""], &["events"], "events.k8s.io", "events", true),
        (&["a.example.com"], &["webs"], "b.example.com", "webs", true),
        (
            &["extensions"],
            &["deployments/scale"],
            "apps",
            "deployments",
            false,
        ),
        // A rule for all resources of a built-in group matches all built-in groups.
        (&["extensions"], &["*"], "apps", "deployments", true),
        (
            &["extensions"],
            &["*/*"],
            "networking.k8s.io",
            "ingresses",
            true,
        ),
        (&[""], &["*"], "events.k8s.io", "events", true),
        (&["events.k8s.io"], &["*"], "", "events", true),
        // A later Kubernetes version may have a built-in group that the table of this release
        // lacks.
        (&["later.k8s.io"], &["*"], "apps", "deployments", true),
        (&["extensions"], &["*/scale"], "apps", "deployments", false),
        // A custom resource has one group, so a rule for another group does not match.
        (&["extensions"], &["*"], "a.example.com", "webs", false),
        (&["a.example.com"], &["*"], "a.example.com", "webs", true),
        (&["a.example.com"], &["*"], "b.example.com", "webs", false),
        (&["a.example.com"], &["*"], "apps", "deployments", false),
        // A rule for all groups and resources.
        (&["*"], &["*"], "a.example.com", "webs", true),
        (&["*"], &["pods"], "apps", "deployments", false),
        (
            &["a.example.com", "*"],
            &["pods", "*"],
            "apps",
            "deployments",
            true,
        ),
        // Invalid rules match every kind.
        (&[], &["pods"], "apps", "deployments", true),
        (&[""], &[], "apps", "deployments", true),
    ] {
        for policy in ["Equivalent", "Exact"] {
            let rule =
                json!({"apiGroups": groups, "apiVersions": ["v1beta1"], "resources": resources});
            let mut kinds = MutatedKinds::default();
            kinds.add(
                &json!({"kind": "MutatingWebhookConfiguration", "webhooks": [
                    {"matchPolicy": policy, "rules": [rule]},
                ]}),
            );
            let mut policies = MutatedKinds::default();
            policies.add(&json!({"kind": "MutatingAdmissionPolicy", "spec": {
                "matchConstraints": {"matchPolicy": policy, "resourceRules": [rule]},
            }}));
            assert_eq!(kinds, policies);
            assert_eq!(
                kinds.contains(group, resource),
                expected,
                "{groups:?} {resources:?}: {group} {resource}"
            );
        }
    }
}

#[test]
fn objects_that_record_their_requester_are_known() {
    let id = |group: &str, kind: &str| ObjectId {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: None,
        name: "a".to_owned(),
    };
    assert!(records_requester(&id(
        "certificates.k8s.io",
        "CertificateSigningRequest"
    )));
    assert!(records_requester(&id("core.rukpak.io", "BundleDeployment")));
    assert!(!records_requester(&id("", "ConfigMap")));
}

/// With a comparison of the whole value at each level, this test would compare a billion values.
#[test]
fn deeply_nested_values_are_compared_once() {
    let nested = |last: u64| {
        let mut value = json!({"large": vec![0; 100_000], "last": last});
        for _ in 0..100 {
            value = json!({ "n": value });
        }
        value.as_object().unwrap().clone()
    };
    let (before, after, none) = (nested(1), nested(2), Map::new());
    for _ in 0..100 {
        let found = Differences::between([&none, &none], [&before, &after]);
        let paths = found.fields.iter().map(|(path, _)| &path[..]);
        assert_eq!(texts(paths, found.is_full), ["n.".repeat(100) + "last"]);
    }
}
