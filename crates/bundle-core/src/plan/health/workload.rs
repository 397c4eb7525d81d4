//! Health of workloads: the counts and conditions that their controllers report.

use serde_json::Value;

use super::Health;
use super::rules::{condition, condition_is, observed, reason_and_message};

/// Value of `spec.progressDeadlineSeconds` that disables the deadline. With this value, the
/// Deployment controller removes the condition `Progressing`.
const NO_DEADLINE: i64 = i32::MAX as i64;

fn count(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or(0)
}

/// Returns `spec.replicas`, which defaults to 1.
fn wanted_replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn at_least(have: i64, wanted: i64, what: &str) -> Health {
    if have < wanted {
        Health::waiting(format!("{have} of {wanted} {what}"))
    } else {
        Health::Ready
    }
}

/// Requires that at most `wanted` replicas exist.
fn none_left_over(object: &Value, wanted: i64) -> Health {
    let extra = count(object, "replicas") - wanted;
    if extra > 0 {
        Health::waiting(format!("{extra} replicas are still to be terminated"))
    } else {
        Health::Ready
    }
}

/// Returns the result of the first check that is not ready; `Ready` if all checks are ready.
fn all_of(checks: impl IntoIterator<Item = Health>) -> Health {
    checks
        .into_iter()
        .find(|health| *health != Health::Ready)
        .unwrap_or(Health::Ready)
}

pub(super) fn deployment(object: &Value) -> Health {
    let progressing = condition(object, "Progressing");
    if let Some(exceeded) =
        progressing.filter(|progressing| progressing["reason"] == "ProgressDeadlineExceeded")
    {
        return Health::Failed(reason_and_message(exceeded));
    }
    let wanted = wanted_replicas(object);
    let updated = count(object, "updatedReplicas");
    all_of([
        observed(object),
        at_least(count(object, "replicas"), wanted, "replicas exist"),
        at_least(updated, wanted, "replicas are updated"),
        none_left_over(object, wanted),
        at_least(
            count(object, "availableReplicas"),
            updated,
            "replicas are available",
        ),
        at_least(count(object, "readyReplicas"), wanted, "replicas are ready"),
        new_replica_set_available(object, progressing),
        deployment_available(object),
    ])
}

fn new_replica_set_available(object: &Value, progressing: Option<&Value>) -> Health {
    let deadline = &object["spec"]["progressDeadlineSeconds"];
    if deadline.as_i64().unwrap_or(NO_DEADLINE) == NO_DEADLINE {
        return Health::Ready;
    }
    match progressing {
        Some(condition)
            if condition["status"] == "True" && condition["reason"] == "NewReplicaSetAvailable" =>
        {
            Health::Ready
        }
        Some(condition) => Health::waiting(format!(
            "the new ReplicaSet is not available: {}",
            reason_and_message(condition)
        )),
        None => Health::waiting("the new ReplicaSet is not available yet"),
    }
}

fn deployment_available(object: &Value) -> Health {
    match condition(object, "Available") {
        Some(condition) if condition["status"] == "True" => Health::Ready,
        Some(condition) => {
            Health::waiting(format!("not available: {}", reason_and_message(condition)))
        }
        None => Health::waiting("not available yet"),
    }
}

pub(super) fn stateful_set(object: &Value) -> Health {
    let strategy = &object["spec"]["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return observed(object);
    }
    let wanted = wanted_replicas(object);
    all_of([
        observed(object),
        at_least(count(object, "replicas"), wanted, "replicas exist"),
        at_least(count(object, "readyReplicas"), wanted, "replicas are ready"),
        none_left_over(object, wanted),
        match strategy["rollingUpdate"]["partition"].as_i64() {
            // The API server sets `partition` to 0 by default. With 0, all replicas must have the
            // new revision.
            Some(partition) => at_least(
                count(object, "updatedReplicas"),
                wanted - partition,
                "replicas are updated",
            ),
            None => one_revision(object, wanted),
        },
    ])
}

fn one_revision(object: &Value, wanted: i64) -> Health {
    let status = &object["status"];
    if status["currentRevision"] == status["updateRevision"] {
        at_least(
            count(object, "currentReplicas"),
            wanted,
            "replicas are of the current revision",
        )
    } else {
        let updated = count(object, "updatedReplicas");
        Health::waiting(format!(
            "{updated} of {wanted} replicas are of the new revision"
        ))
    }
}

pub(super) fn daemon_set(object: &Value) -> Health {
    let Some(wanted) = object["status"]["desiredNumberScheduled"].as_i64() else {
        return Health::waiting("its controller has not counted the nodes yet");
    };
    let by_hand = object["spec"]["updateStrategy"]["type"] == "OnDelete";
    let enough = |field: &str, what: &str| at_least(count(object, field), wanted, what);
    all_of([
        observed(object),
        enough("currentNumberScheduled", "pods are scheduled"),
        if by_hand {
            Health::Ready
        } else {
            enough("updatedNumberScheduled", "pods are updated")
        },
        enough("numberAvailable", "pods are available"),
        enough("numberReady", "pods are ready"),
    ])
}

pub(super) fn replica_set(object: &Value) -> Health {
    if let Some(failure) =
        condition(object, "ReplicaFailure").filter(|failure| failure["status"] == "True")
    {
        return Health::waiting(format!(
            "pods cannot be created: {}",
            reason_and_message(failure)
        ));
    }
    let wanted = wanted_replicas(object);
    let enough = |field: &str, what: &str| at_least(count(object, field), wanted, what);
    all_of([
        observed(object),
        enough("fullyLabeledReplicas", "replicas are labelled"),
        enough("availableReplicas", "replicas are available"),
        enough("readyReplicas", "replicas are ready"),
        none_left_over(object, wanted),
    ])
}

/// Returns the health of a Job. A running Job is ready, because a Job can run for days.
pub(super) fn job(object: &Value) -> Health {
    if let Some(failed) = condition(object, "Failed").filter(|failed| failed["status"] == "True") {
        return Health::Failed(reason_and_message(failed));
    }
    let ended = ["Complete", "Suspended"]
        .iter()
        .any(|kind| condition_is(object, kind, "True"));
    if !ended && object["status"]["startTime"].is_null() {
        return Health::waiting("it has not started");
    }
    Health::Ready
}
