//! Rows of kind, object and expected health. The cases follow the branches of kstatus.

mod workloads;

use serde_json::{Value, json};

use super::*;

/// Columns: group, kind, object, and the expected result. The result is `ready`, a part of the
/// message, or `failed: …` for a failed object.
type Row = (&'static str, &'static str, Value, &'static str);

fn assert_rows(rows: &[Row]) {
    for (group, kind, object, expected) in rows {
        let found = match health(group, kind, object) {
            Health::Ready => "ready".to_owned(),
            Health::Waiting(why) => why,
            Health::Failed(why) => format!("failed: {why}"),
        };
        assert!(
            found.contains(expected),
            "{kind} {object}: expected `{expected}`, found `{found}`"
        );
        assert_eq!(found == "ready", *expected == "ready", "{kind} {object}");
        assert_eq!(
            found.starts_with("failed"),
            expected.starts_with("failed"),
            "{kind} {object}"
        );
    }
}

#[test]
fn object_with_another_uid_is_missing_and_is_not_quoted() {
    let object = |uid: Value| json!({"metadata": {"uid": uid}, "status": {"text": "secret"}});
    let quote = |object: &Value| Health::Failed(object["status"].to_string());
    for (object, uid, is_same) in [
        (object("a".into()), Some("a"), true),
        (object("b".into()), Some("a"), false),
        (object("a".into()), None, false),
        (object("".into()), Some(""), false),
        (object(Value::Null), None, false),
        (json!({"status": {"text": "secret"}}), None, false),
        (json!({"status": {"text": "secret"}}), Some("a"), false),
    ] {
        let found = installed_health(&object, uid, quote);
        if is_same {
            assert_eq!(found, quote(&object));
        } else {
            let expected = Health::waiting("does not exist: another object has its name");
            assert_eq!(found, expected, "{object} {uid:?}");
        }
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": "words" })
}

/// Returns an object of generation 1 that its controller has observed.
fn observed(spec: &Value, status: Value) -> Value {
    let mut status = status;
    status["observedGeneration"] = 1.into();
    json!({ "metadata": { "generation": 1 }, "spec": spec, "status": status })
}

/// Returns a ready Deployment of two replicas, with changes to its status.
fn deployment(changes: &Value) -> Value {
    let mut status = json!({
        "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [
            condition("Progressing", "True", "NewReplicaSetAvailable"),
            condition("Available", "True", "MinimumReplicasAvailable"),
        ],
    });
    for (field, value) in changes.as_object().cloned().unwrap_or_default() {
        status[field] = value;
    }
    observed(
        &json!({ "replicas": 2, "progressDeadlineSeconds": 600 }),
        status,
    )
}

#[test]
fn other_kinds_follow_their_conditions_and_phases() {
    let with = |condition: Value| json!({ "status": { "conditions": [condition] } });
    let crd = "CustomResourceDefinition";
    let extensions = "apiextensions.k8s.io";
    assert_rows(&[
        (
            extensions,
            crd,
            with(condition("Established", "True", "Initial")),
            "ready",
        ),
        (extensions, crd, json!({}), "not Established yet"),
        (
            extensions,
            crd,
            with(condition("Established", "False", "Installing")),
            "Installing",
        ),
        (
            extensions,
            crd,
            with(condition("Established", "False", "Broken")),
            "failed: Broken",
        ),
        (
            extensions,
            crd,
            with(condition("NamesAccepted", "False", "ListKindConflict")),
            "failed: ListKindConflict",
        ),
        (
            "",
            "Namespace",
            json!({ "status": { "phase": "Active" } }),
            "ready",
        ),
        (
            "",
            "Namespace",
            json!({ "metadata": { "deletionTimestamp": "t" }, "status": { "phase": "Active" } }),
            "is being deleted",
        ),
        (
            "",
            "PersistentVolumeClaim",
            json!({ "status": { "phase": "Bound" } }),
            "ready",
        ),
        (
            "",
            "PersistentVolumeClaim",
            json!({ "status": { "phase": "Pending" } }),
            "phase is Pending",
        ),
        (
            "",
            "PersistentVolumeClaim",
            json!({ "status": { "phase": "Lost" } }),
            "failed: its phase is Lost",
        ),
        (
            "",
            "Service",
            json!({ "spec": { "type": "LoadBalancer" } }),
            "no cluster IP",
        ),
        (
            "",
            "Service",
            json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.0.0.1" } }),
            "ready",
        ),
        ("", "Service", json!({ "spec": {} }), "ready"),
        (
            "apiregistration.k8s.io",
            "APIService",
            with(condition("Available", "True", "")),
            "ready",
        ),
        (
            "apiregistration.k8s.io",
            "APIService",
            with(condition("Available", "False", "MissingEndpoints")),
            "not Available: MissingEndpoints",
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({}),
            "has not seen it yet",
        ),
        (
            "policy",
            "PodDisruptionBudget",
            observed(&json!({}), json!({})),
            "ready",
        ),
        ("", "ConfigMap", json!({}), "ready"),
        ("batch", "CronJob", json!({}), "ready"),
    ]);
}

#[test]
fn custom_resources_follow_the_conventions() {
    let with = |condition: Value| json!({ "status": { "conditions": [condition] } });
    let group = "example.com";
    assert_rows(&[
        (group, "Widget", json!({}), "ready"),
        (
            group,
            "Widget",
            with(condition("Ready", "True", "")),
            "ready",
        ),
        (
            group,
            "Widget",
            with(condition("Ready", "False", "Soon")),
            "not Ready: Soon: words",
        ),
        (
            group,
            "Widget",
            with(condition("Ready", "Unknown", "Soon")),
            "not Ready: Soon",
        ),
        (
            group,
            "Widget",
            with(condition("Stalled", "True", "Broken")),
            "failed: Broken",
        ),
        (
            group,
            "Widget",
            with(condition("Reconciling", "True", "Busy")),
            "Busy: words",
        ),
        (
            group,
            "Widget",
            with(condition("Stalled", "False", "")),
            "ready",
        ),
        (
            group,
            "Widget",
            json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } }),
            "has seen generation 1 of 2",
        ),
        (
            group,
            "Widget",
            json!({ "status": "odd", "metadata": 3 }),
            "ready",
        ),
    ]);
}

#[test]
fn the_conventions_hold_for_built_in_kinds_with_a_rule_too() {
    let mut object = deployment(&json!({}));
    object["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(condition("Stalled", "True", "Broken"));
    assert_rows(&[("apps", "Deployment", object, "failed: Broken")]);
}

#[test]
fn kinds_that_are_always_ready_are_never_read() {
    for (group, kind, expected) in [
        ("", "ConfigMap", false),
        ("", "Secret", false),
        ("rbac.authorization.k8s.io", "Role", false),
        ("networking.k8s.io", "Ingress", false),
        ("autoscaling", "HorizontalPodAutoscaler", false),
        ("batch", "CronJob", false),
        ("apps", "ControllerRevision", false),
        ("apps", "Deployment", true),
        ("", "Namespace", true),
        ("policy", "PodDisruptionBudget", true),
        ("example.com", "Widget", true),
        ("cert-manager.io", "Certificate", true),
    ] {
        assert_eq!(has_health(group, kind), expected, "{kind}");
    }
}

#[test]
fn each_kind_stands_in_the_table_once() {
    let mut seen = std::collections::BTreeSet::new();
    for entry in kinds::KINDS {
        assert!(seen.insert((entry.group, entry.kind)), "{}", entry.kind);
        assert!(!entry.ready.is_empty());
    }
}

#[test]
fn long_texts_in_the_status_of_objects_are_shortened() {
    let long = "x".repeat(1 << 20);
    let conditions = |kind: &str, status: &str| json!([{"type": kind, "status": status, "reason": long, "message": long}]);
    let waiting = json!([{"name": "web", "state": {"waiting": {"reason": format!("{long}BackOff"), "message": long}}}]);
    for (group, kind, status) in [
        (
            "example.com",
            "Widget",
            json!({"conditions": conditions("Ready", "False")}),
        ),
        (
            "example.com",
            "Widget",
            json!({"conditions": conditions("Stalled", "True")}),
        ),
        (
            "example.com",
            "Widget",
            json!({"conditions": conditions("Reconciling", "True")}),
        ),
        (
            "batch",
            "Job",
            json!({"conditions": conditions("Failed", "True")}),
        ),
        (
            "",
            "Pod",
            json!({"phase": "Failed", "reason": long, "message": long}),
        ),
        (
            "",
            "Pod",
            json!({"phase": "Pending", "containerStatuses": waiting}),
        ),
        ("", "Namespace", json!({"phase": long})),
    ] {
        let found = health(group, kind, &json!({"status": status}));
        let (Health::Waiting(why) | Health::Failed(why)) = found else {
            panic!("{kind} is ready");
        };
        assert!(why.len() < 2 << 10, "{kind}: {}", why.len());
        assert!(why.ends_with('…'), "{kind}");
    }
}
