//! Conditions that select the objects of each row of `bundle_core::plan::health::differences`.

use bundle_core::plan::health::has_health;
use serde_json::Value;

/// Returns the group and the kind of `object`.
pub(super) fn group_kind(object: &Value) -> (&str, &str) {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, _) = api_version.split_once('/').unwrap_or_default();
    (group, object["kind"].as_str().unwrap())
}

/// Returns a function that returns `true` for the objects of the row with this name.
pub(super) fn condition_of(name: &str) -> Option<fn(&Value) -> bool> {
    Some(match name {
        "kstatus-not-observed" => |object| {
            let kinds = [
                "Deployment",
                "StatefulSet",
                "ReplicaSet",
                "PodDisruptionBudget",
            ];
            is_of(object, &kinds) && !is_observed(object)
        },
        "kstatus-daemon-set-on-delete" => {
            |object| is_of(object, &["DaemonSet"]) && is_on_delete(object)
        }
        "kstatus-replication-controller" => |object| is_of(object, &["ReplicationController"]),
        "kstatus-job-suspended" => |object| {
            is_of(object, &["Job"]) && has(object, "Suspended", "True") && !has_started(object)
        },
        "kstatus-pod-failed" => {
            |object| is_of(object, &["Pod"]) && object["status"]["phase"] == "Failed"
        }
        "kstatus-pod-blocked" => |object| is_of(object, &["Pod"]) && is_blocked(object),
        "kstatus-pod-unschedulable" => |object| {
            is_of(object, &["Pod"]) && object["status"].to_string().contains("Unschedulable")
        },
        "kstatus-pod-unknown" => {
            |object| is_of(object, &["Pod"]) && object["status"]["phase"] == "Unknown"
        }
        "kstatus-claim-lost" => |object| object["status"]["phase"] == "Lost",
        "kstatus-namespace" => |object| is_of(object, &["Namespace"]),
        "kstatus-api-service" | "kstatus-ready-invalid" => is_unavailable,
        "kstatus-unread-kinds" | "argo-unread-kinds" => |object| {
            let (group, kind) = group_kind(object);
            !has_health(group, kind) && (is_deleted(object) || is_generation_old(object))
        },
        "argo-deployment-paused" => |object| object["spec"]["paused"] == true,
        "argo-deployment-counts" => |object| is_of(object, &["Deployment"]) && is_observed(object),
        "argo-stateful-set-counts" => {
            |object| is_of(object, &["StatefulSet"]) && is_observed(object) && !is_on_delete(object)
        }
        "argo-stateful-set-on-delete" => {
            |object| is_of(object, &["StatefulSet"]) && is_on_delete(object)
        }
        "argo-daemon-set-counts" => {
            |object| is_of(object, &["DaemonSet"]) && is_observed(object) && !is_on_delete(object)
        }
        "argo-daemon-set-on-delete" => {
            |object| is_of(object, &["DaemonSet"]) && is_on_delete(object)
        }
        "argo-replica-failure" => {
            |object| is_of(object, &["ReplicaSet"]) && has(object, "ReplicaFailure", "True")
        }
        "argo-replica-set-counts" => |object| is_of(object, &["ReplicaSet"]) && is_observed(object),
        "argo-job-running" => |object| is_of(object, &["Job"]) && has_started(object),
        "argo-job-resumed" => |object| is_of(object, &["Job"]) && has(object, "Suspended", "False"),
        "argo-job-suspended" => {
            |object| is_of(object, &["Job"]) && has(object, "Suspended", "True")
        }
        "argo-pod-finite" => |object| {
            is_of(object, &["Pod"])
                && has(object, "Ready", "True")
                && object["spec"]["restartPolicy"] != "Always"
        },
        "argo-pod-blocked" => |object| is_of(object, &["Pod"]) && is_blocked(object),
        "argo-pod-restarted" => {
            |object| is_of(object, &["Pod"]) && object["status"].to_string().contains("lastState")
        }
        "argo-pod-unknown" => |object| {
            let phase = &object["status"]["phase"];
            is_of(object, &["Pod"])
                && (phase.is_null() || phase == "Unknown" || object["spec"].is_null())
        },
        "argo-claim-without-phase" => |object| {
            is_of(object, &["PersistentVolumeClaim"]) && object["status"]["phase"].is_null()
        },
        "argo-load-balancer" => |object| {
            is_of(object, &["Service"]) && object["status"]["loadBalancer"]["ingress"].is_null()
        },
        "argo-ingress" => |object| {
            is_of(object, &["Ingress"]) && object["status"]["loadBalancer"]["ingress"].is_null()
        },
        "argo-autoscaler" => |object| is_of(object, &["HorizontalPodAutoscaler"]),
        "argo-without-check" => |object| {
            let (group, kind) = group_kind(object);
            [
                "CustomResourceDefinition",
                "Namespace",
                "PodDisruptionBudget",
                "ReplicationController",
            ]
            .contains(&kind)
                || group.contains('.') && kind != "APIService"
        },
        "argo-generic" => |object| {
            has(object, "Reconciling", "True")
                || has(object, "Stalled", "True")
                || is_generation_old(object)
        },
        "argo-workflow" => |object| is_of(object, &["Workflow"]),
        _ => return None,
    })
}

fn is_of(object: &Value, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| object["kind"] == *kind)
}

/// Returns `true` if the object has the condition with this status.
pub(super) fn has(object: &Value, kind: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == kind && condition["status"] == status)
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn is_observed(object: &Value) -> bool {
    !object["status"]["observedGeneration"].is_null()
}

fn is_generation_old(object: &Value) -> bool {
    is_observed(object)
        && object["status"]["observedGeneration"] != object["metadata"]["generation"]
}

fn is_on_delete(object: &Value) -> bool {
    object["spec"]["updateStrategy"]["type"] == "OnDelete"
}

fn has_started(object: &Value) -> bool {
    !object["status"]["startTime"].is_null()
}

fn is_blocked(object: &Value) -> bool {
    let status = object["status"].to_string();
    ["BackOff", "ErrImagePull", "ConfigError"]
        .iter()
        .any(|reason| status.contains(reason))
}

/// Returns `true` for an APIService that is not available, and for a custom resource whose
/// condition `Ready` has an invalid status.
fn is_unavailable(object: &Value) -> bool {
    match object["kind"].as_str() {
        Some("APIService") => !has(object, "Available", "True"),
        _ => has(object, "Ready", "Maybe"),
    }
}
