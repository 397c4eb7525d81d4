//! Health of Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs and Pods.

use super::*;

fn deployment_with(conditions: &[Value]) -> Value {
    deployment(&json!({ "conditions": conditions }))
}

#[test]
fn deployments_follow_kstatus() {
    let available = condition("Available", "True", "MinimumReplicasAvailable");
    let rows = [
        (deployment(&json!({})), "ready"),
        (json!({ "spec": {} }), "has not seen it yet"),
        (
            deployment(&json!({ "replicas": 1 })),
            "1 of 2 replicas exist",
        ),
        (
            deployment(&json!({ "updatedReplicas": 1 })),
            "1 of 2 replicas are updated",
        ),
        (
            deployment(&json!({ "replicas": 3 })),
            "1 replicas are still to be terminated",
        ),
        (
            deployment(&json!({ "availableReplicas": 1 })),
            "1 of 2 replicas are available",
        ),
        (
            deployment(&json!({ "readyReplicas": 1 })),
            "1 of 2 replicas are ready",
        ),
        (
            deployment_with(&[
                condition("Progressing", "False", "FailedCreate"),
                available.clone(),
            ]),
            "the new ReplicaSet is not available: FailedCreate: words",
        ),
        (
            deployment_with(std::slice::from_ref(&available)),
            "is not available yet",
        ),
        (
            deployment_with(&[
                condition("Progressing", "True", "NewReplicaSetAvailable"),
                condition("Available", "False", "MinimumReplicasUnavailable"),
            ]),
            "not available: MinimumReplicasUnavailable",
        ),
        (
            deployment_with(&[condition(
                "Progressing",
                "False",
                "ProgressDeadlineExceeded",
            )]),
            "failed: ProgressDeadlineExceeded",
        ),
        // The controller reports `Available` and `Progressing` even if `replicas` is 0.
        (
            observed(
                &json!({ "replicas": 0 }),
                json!({ "conditions": [available] }),
            ),
            "ready",
        ),
    ];
    assert_rows(&rows.map(|(object, expected)| ("apps", "Deployment", object, expected)));
}

#[test]
fn stateful_sets_follow_kstatus() {
    let set = |spec: Value, changes: Value| {
        let mut status = json!({
            "replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
            "currentRevision": "a", "updateRevision": "a",
        });
        for (field, value) in changes.as_object().cloned().unwrap_or_default() {
            status[field] = value;
        }
        let mut spec = spec;
        spec["replicas"] = 2.into();
        observed(&spec, status)
    };
    let partition =
        |from: i64| json!({ "updateStrategy": { "rollingUpdate": { "partition": from } } });
    let rows = [
        (set(json!({}), json!({})), "ready"),
        (
            set(json!({}), json!({ "replicas": 1 })),
            "1 of 2 replicas exist",
        ),
        (
            set(json!({}), json!({ "readyReplicas": 1 })),
            "1 of 2 replicas are ready",
        ),
        (
            set(json!({}), json!({ "replicas": 3 })),
            "1 replicas are still to be terminated",
        ),
        (
            set(
                json!({}),
                json!({ "updateRevision": "b", "updatedReplicas": 1 }),
            ),
            "1 of 2 replicas are of the new revision",
        ),
        (
            set(json!({}), json!({ "currentReplicas": 1 })),
            "1 of 2 replicas are of the current",
        ),
        // Partition 0 is the default of the API server. All replicas must be updated.
        (
            set(
                partition(0),
                json!({ "updateRevision": "b", "updatedReplicas": 1 }),
            ),
            "1 of 2 replicas are updated",
        ),
        (
            set(
                partition(1),
                json!({ "updateRevision": "b", "updatedReplicas": 1 }),
            ),
            "ready",
        ),
        (
            set(
                partition(1),
                json!({ "updateRevision": "b", "updatedReplicas": 0 }),
            ),
            "0 of 1 replicas are updated",
        ),
        (
            set(
                json!({ "updateStrategy": { "type": "OnDelete" } }),
                json!({ "readyReplicas": 0 }),
            ),
            "ready",
        ),
        (
            json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } }),
            "has not seen it yet",
        ),
    ];
    assert_rows(&rows.map(|(object, expected)| ("apps", "StatefulSet", object, expected)));
}

#[test]
fn daemon_sets_and_replica_sets_follow_kstatus() {
    let daemon = |spec: Value, changes: Value| {
        let mut status = json!({
            "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2,
            "numberAvailable": 2, "numberReady": 2,
        });
        for (field, value) in changes.as_object().cloned().unwrap_or_default() {
            status[field] = value;
        }
        ("apps", "DaemonSet", observed(&spec, status))
    };
    let replicas = |changes: Value| {
        let mut status = json!({
            "replicas": 1, "fullyLabeledReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
        });
        for (field, value) in changes.as_object().cloned().unwrap_or_default() {
            status[field] = value;
        }
        ("apps", "ReplicaSet", observed(&json!({}), status))
    };
    let rows = [
        (daemon(json!({}), json!({})), "ready"),
        (
            daemon(json!({}), json!({ "desiredNumberScheduled": null })),
            "not counted the nodes",
        ),
        (
            daemon(json!({}), json!({ "currentNumberScheduled": 1 })),
            "1 of 2 pods are scheduled",
        ),
        (
            daemon(json!({}), json!({ "updatedNumberScheduled": 1 })),
            "1 of 2 pods are updated",
        ),
        (
            daemon(json!({}), json!({ "numberAvailable": 1 })),
            "1 of 2 pods are available",
        ),
        (
            daemon(json!({}), json!({ "numberReady": 1 })),
            "1 of 2 pods are ready",
        ),
        (
            daemon(
                json!({ "updateStrategy": { "type": "OnDelete" } }),
                json!({ "updatedNumberScheduled": 0 }),
            ),
            "ready",
        ),
        (replicas(json!({})), "ready"),
        (
            replicas(json!({ "fullyLabeledReplicas": 0 })),
            "0 of 1 replicas are labelled",
        ),
        (
            replicas(json!({ "availableReplicas": 0 })),
            "0 of 1 replicas are available",
        ),
        (
            replicas(json!({ "readyReplicas": 0 })),
            "0 of 1 replicas are ready",
        ),
        (
            replicas(json!({ "replicas": 2 })),
            "1 replicas are still to be terminated",
        ),
        (
            replicas(
                json!({ "conditions": [condition("ReplicaFailure", "True", "FailedCreate")] }),
            ),
            "pods cannot be created: FailedCreate: words",
        ),
    ];
    assert_rows(&rows.map(|((group, kind, object), expected)| (group, kind, object, expected)));
}

#[test]
fn jobs_follow_kstatus() {
    let job = |status: Value| json!({ "status": status });
    let with = |kind: &str| job(json!({ "conditions": [condition(kind, "True", "Because")] }));
    let rows = [
        (job(json!({})), "it has not started"),
        (job(json!({ "startTime": "2026-01-01T00:00:00Z" })), "ready"),
        (with("Complete"), "ready"),
        (with("Suspended"), "ready"),
        (with("Failed"), "failed: Because: words"),
    ];
    assert_rows(&rows.map(|(object, expected)| ("batch", "Job", object, expected)));
}

#[test]
fn pods_tell_why_they_do_not_run() {
    let pod = |status: Value| json!({ "status": status });
    let waiting = |list: &str, reason: &str| {
        let container = json!({ "name": "c", "state": { "waiting": { "reason": reason, "message": "words" } } });
        let mut status = json!({ "phase": "Pending" });
        status[list] = json!([container]);
        pod(status)
    };
    let rows = [
        (
            pod(json!({ "phase": "Running", "conditions": [condition("Ready", "True", "")] })),
            "ready",
        ),
        (pod(json!({ "phase": "Succeeded" })), "ready"),
        (pod(json!({})), "it is not Running yet"),
        (
            pod(json!({ "phase": "Failed", "reason": "Evicted", "message": "no memory" })),
            "failed: Evicted: no memory",
        ),
        (
            pod(json!({ "phase": "Failed", "containerStatuses": [
                { "name": "c", "state": { "terminated": { "exitCode": 3 } } },
            ] })),
            "failed: container c failed with exit code 3",
        ),
        (
            pod(json!({ "phase": "Failed" })),
            "failed: its phase is Failed",
        ),
        (
            waiting("containerStatuses", "ImagePullBackOff"),
            "failed: container c: ImagePullBackOff",
        ),
        (
            waiting("containerStatuses", "ErrImagePull"),
            "failed: container c: ErrImagePull",
        ),
        (
            waiting("containerStatuses", "CrashLoopBackOff"),
            "failed: container c: CrashLoopBackOff",
        ),
        (
            waiting("initContainerStatuses", "CreateContainerConfigError"),
            "failed: container c: CreateContainerConfigError: words",
        ),
        (
            waiting("containerStatuses", "ContainerCreating"),
            "its phase is Pending",
        ),
        (
            pod(json!({ "phase": "Pending", "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" },
            ] })),
            "Unschedulable: 0/1 nodes are available",
        ),
    ];
    assert_rows(&rows.map(|(object, expected)| ("", "Pod", object, expected)));
}
