//! Cases for changes of field ownership.

use super::*;

const OURS: &str = "bundle-webhook";

#[expect(clippy::needless_pass_by_value, reason = "the rows pass their values")]
fn entry(manager: &str, operation: &str, api_version: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn id(group: &str, kind: &str) -> ObjectId {
    ObjectId {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some("team-a".to_owned()),
        name: "web".to_owned(),
    }
}

#[test]
fn adoption_transfers_fields_of_former_managers_only() {
    let change = OwnershipChange {
        takes_over: true,
        ..OwnershipChange::default()
    };
    let mut status = entry("helm", "Update", "v1", json!({"f:status": {}}));
    status["subresource"] = "status".into();
    let edited = entry(
        "kubectl-edit",
        "Update",
        "v1",
        json!({"f:data": {"f:z": {}}}),
    );
    for (manager, operation) in [
        ("kubectl-client-side-apply", "Update"),
        ("kubectl", "Apply"),
        ("helm", "Update"),
        ("helm", "Apply"),
    ] {
        let theirs = entry(
            manager,
            operation,
            "v1",
            json!({"f:data": {".": {}, "f:a": {}}}),
        );
        let before = [theirs.clone(), status.clone(), edited.clone()];
        let after = change.applied(&before, OURS, "v1").unwrap();
        let ours = entry(OURS, "Apply", "v1", json!({"f:data": {".": {}, "f:a": {}}}));
        assert_eq!(after, [status.clone(), edited.clone(), ours], "{manager}");
        // The fields are added to the existing entry.
        let ours = entry(OURS, "Apply", "v1", json!({"f:data": {"f:b": {}}}));
        let after = change.applied(&[ours, theirs], OURS, "v1").unwrap();
        let both = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}});
        assert_eq!(after, [entry(OURS, "Apply", "v1", both)]);
    }
    for (manager, operation) in [
        ("kubectl-client-side-apply", "Apply"),
        ("kubectl", "Update"),
        ("kubectl-edit", "Update"),
    ] {
        let theirs = entry(manager, operation, "v1", json!({"f:data": {"f:a": {}}}));
        assert_eq!(change.applied(&[theirs, status.clone()], OURS, "v1"), None);
    }
}

#[test]
fn fields_of_another_api_version_become_unowned() {
    let change = OwnershipChange {
        takes_over: true,
        ..OwnershipChange::default()
    };
    let theirs = entry("helm", "Update", "autoscaling/v1", json!({"f:spec": {}}));
    let after = change.applied(&[theirs], OURS, "autoscaling/v2").unwrap();
    assert_eq!(after, [entry(OURS, "Apply", "autoscaling/v2", json!({}))]);
}

#[test]
fn string_data_of_an_earlier_apply_is_owned_as_data() {
    let change = OwnershipChange {
        folds_string_data: true,
        ..OwnershipChange::default()
    };
    let before = json!({"f:stringData": {"f:a": {}}, "f:data": {"f:b": {}}});
    let theirs = entry("else", "Apply", "v1", before.clone());
    let after = change
        .applied(
            &[entry(OURS, "Apply", "v1", before), theirs.clone()],
            OURS,
            "v1",
        )
        .unwrap();
    let folded = json!({"f:data": {"f:a": {}, "f:b": {}}});
    assert_eq!(after, [entry(OURS, "Apply", "v1", folded), theirs.clone()]);
    assert_eq!(change.applied(&after, OURS, "v1"), None);
}

#[test]
fn only_the_contested_list_changes_its_owner() {
    let port = |n: u16| format!(r#"k:{{"port":{n},"protocol":"TCP"}}"#);
    let lists = contested_lists(
        &id("", "Service"),
        [("FieldValueDuplicate", "spec.ports[1].name")],
    );
    let change = OwnershipChange {
        lists,
        ..OwnershipChange::default()
    };
    let ours = entry(OURS, "Apply", "v1", json!({"f:spec": {"f:selector": {}}}));
    let theirs = json!({"f:spec": {"f:ports": {port(81): {".": {}, "f:port": {}}}, "f:type": {}}});
    let theirs = entry("kubectl-edit", "Update", "v1", theirs);
    let only_ports = json!({"f:spec": {"f:ports": {port(82): {".": {}}}}});
    let others = entry("x", "Update", "v1", only_ports);
    let older = entry("y", "Update", "v0", json!({"f:spec": {"f:ports": {}}}));
    let after = change
        .applied(&[ours, theirs, others, older.clone()], OURS, "v1")
        .unwrap();
    let taken = json!({"f:spec": {"f:selector": {}, "f:ports": {
        port(81): {".": {}, "f:port": {}}, port(82): {".": {}},
    }}});
    assert_eq!(
        after,
        [
            entry(OURS, "Apply", "v1", taken),
            entry(
                "kubectl-edit",
                "Update",
                "v1",
                json!({"f:spec": {"f:type": {}}})
            ),
            older,
        ]
    );
    assert_eq!(change.applied(&after, OURS, "v1"), None);
}

#[test]
fn contested_list_inside_of_items_changes_its_owner_only_in_own_items() {
    let lists = contested_lists(
        &id("apps", "Deployment"),
        [("FieldValueDuplicate", "spec.containers[0].ports[1].name")],
    );
    let change = OwnershipChange {
        lists,
        ..OwnershipChange::default()
    };
    let ours = json!({"f:spec": {"f:containers": {"k:web": {"f:image": {}}}}});
    let theirs = json!({"f:spec": {"f:containers": {
        "k:web": {"f:ports": {"k:81": {}}}, "k:sidecar": {"f:ports": {"k:82": {}}},
    }}});
    let before = [
        entry(OURS, "Apply", "v1", ours),
        entry("x", "Update", "v1", theirs),
    ];
    let after = change.applied(&before, OURS, "v1").unwrap();
    let taken =
        json!({"f:spec": {"f:containers": {"k:web": {"f:image": {}, "f:ports": {"k:81": {}}}}}});
    let left = json!({"f:spec": {"f:containers": {"k:sidecar": {"f:ports": {"k:82": {}}}}}});
    assert_eq!(
        after,
        [
            entry(OURS, "Apply", "v1", taken),
            entry("x", "Update", "v1", left)
        ]
    );
}

#[test]
fn only_causes_about_lists_count() {
    let (service, other) = (id("", "Service"), id("apps", "Deployment"));
    let count = |id, reason, field| contested_lists(id, [(reason, field)]).len();
    for (id, reason, field, expected) in [
        (&service, "FieldValueDuplicate", "spec.ports[1].name", 1),
        (&service, "FieldValueDuplicate", "spec.ports[1]", 1),
        (&service, "FieldValueRequired", "spec.ports[0].name", 1),
        (&other, "FieldValueRequired", "spec.ports[0].name", 0),
        (&service, "FieldValueRequired", "spec.ports[0].port", 0),
        (&service, "FieldValueInvalid", "spec.ports[1].name", 0),
        (&service, "FieldValueDuplicate", "spec.clusterIP", 0),
        (
            &service,
            "FieldValueDuplicate",
            "metadata.annotations[a]",
            0,
        ),
        (&service, "FieldValueDuplicate", "spec.matrix[0][1]", 0),
        (&service, "FieldValueDuplicate", "[0].a", 0),
    ] {
        assert_eq!(count(id, reason, field), expected, "{reason} {field}");
    }
    let twice = [
        ("FieldValueDuplicate", "spec.ports[0]"),
        ("FieldValueDuplicate", "spec.ports[1]"),
    ];
    assert_eq!(contested_lists(&service, twice).len(), 1);
}

#[test]
fn fields_of_only_former_managers_are_removed() {
    let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields});
    let port = |number: u32| format!("k:{{\"containerPort\":{number}}}");
    let mut object = json!({
        "apiVersion": "apps/v1",
        "metadata": {
            "labels": {"app": "web", "old": "x", "team": "a"},
            "finalizers": ["old", "kept"],
            "managedFields": [
                entry("helm", "Update", json!({
                    "f:metadata": {
                        "f:labels": {".": {}, "f:app": {}, "f:old": {}, "f:team": {}},
                        "f:finalizers": {".": {}, "v:\"old\"": {}},
                    },
                    "f:spec": {
                        "f:paused": {}, "f:whole": {"f:part": {}},
                        "f:ports": {".": {}, port(80): {".": {}, "f:name": {}}, port(81): {".": {}, "f:name": {}}},
                    },
                })),
                entry("bundle-webhook", "Apply", json!({
                    "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {"v:\"kept\"": {}}},
                    "f:spec": {"f:whole": {}, "f:ports": {port(80): {".": {}}}},
                })),
                entry("team", "Update", json!({"f:metadata": {"f:labels": {"f:team": {}}}})),
            ],
        },
        "spec": {
            "paused": true, "whole": {"part": 1},
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81, "name": "admin"}],
        },
    });
    remove_former_fields(&mut object);
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("managedFields");
    assert_eq!(
        object,
        json!({
            "apiVersion": "apps/v1",
            "metadata": {"labels": {"app": "web", "team": "a"}, "finalizers": ["kept"]},
            "spec": {"whole": {"part": 1}, "ports": [{"containerPort": 80}]},
        })
    );
}

#[test]
fn fields_without_a_manager_stay_beside_removed_ones() {
    let helm = json!({"manager": "helm", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {
        "f:metadata": {"f:annotations": {".": {}, "f:release": {}}}, "f:data": {"f:old": {}},
    }});
    let mut object = json!({
        "apiVersion": "v1",
        "metadata": {"name": "web", "annotations": {"release": "web"}, "managedFields": [helm]},
        "data": {"old": "x", "kept": "y"},
    });
    remove_former_fields(&mut object);
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "metadata": {"name": "web"}, "data": {"kept": "y"}})
    );
}
