//! Whether an object does what it is there for, by the rules of kstatus. What no rule knows is healthy once it exists.
//! Not here: fetching it, or waiting.

use serde_json::Value;

/// What an object says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It is up, or there is nothing to wait for.
    Ready,
    /// It is on its way.
    Waiting(String),
    /// It has given up.
    Failed(String),
}

/// Whether objects of this kind can be anything but ready: those that can are read when they change, the others never.
pub fn is_told(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(
            kind,
            "Namespace" | "Pod" | "PersistentVolumeClaim" | "Service" | "ReplicationController"
        ),
        "apps" | "batch" | "apiextensions.k8s.io" | "apiregistration.k8s.io" => {
            !matches!(kind, "CronJob" | "ControllerRevision")
        }
        "policy" => kind == "PodDisruptionBudget",
        "cert-manager.io" => true,
        // Groups of Kubernetes itself have no dot or end in k8s.io; any other kind is somebody's custom resource.
        group => group.contains('.') && !group.ends_with(".k8s.io"),
    }
}

/// The health of `object`, of which group and kind are given and the rest is read.
pub fn health(group: &str, kind: &str, object: &Value) -> Health {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return waiting("is being deleted");
    }
    let status = &object["status"];
    let generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64);
    if let (Some(generation), Some(observed)) = (generation, status["observedGeneration"].as_i64())
        && observed < generation
    {
        return waiting("its controller has not seen the latest change yet");
    }
    match (group, kind) {
        ("apps", "Deployment") => deployment(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            let wanted = number_or(&object["spec"]["replicas"], 1);
            counted("available", number(&status["availableReplicas"]), wanted)
        }
        ("batch", "Job") => job(status),
        ("", "Pod") => pod(status),
        ("", "PersistentVolumeClaim") => phase_is(status, "Bound"),
        ("", "Namespace") => phase_is(status, "Active"),
        ("", "Service") => service(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(status),
        ("apiregistration.k8s.io", "APIService") => must_be_true(status, "Available"),
        _ => by_conditions(status),
    }
}

fn waiting(why: impl Into<String>) -> Health {
    Health::Waiting(why.into())
}

fn number(value: &Value) -> i64 {
    number_or(value, 0)
}

fn number_or(value: &Value, default: i64) -> i64 {
    value.as_i64().unwrap_or(default)
}

fn counted(what: &str, have: i64, wanted: i64) -> Health {
    if have < wanted {
        waiting(format!("{have} of {wanted} replicas {what}"))
    } else {
        Health::Ready
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

fn said(condition: &Value) -> String {
    let text = |key: &str| condition[key].as_str().unwrap_or_default();
    match (text("reason"), text("message")) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

fn all_of(checks: impl IntoIterator<Item = Health>) -> Health {
    checks
        .into_iter()
        .find(|health| *health != Health::Ready)
        .unwrap_or(Health::Ready)
}

fn seen_by_controller(status: &Value) -> Health {
    if status["observedGeneration"].is_null() {
        waiting("its controller has not seen it yet")
    } else {
        Health::Ready
    }
}

fn deployment(object: &Value) -> Health {
    let status = &object["status"];
    if let Some(progressing) = condition(status, "Progressing")
        && progressing["reason"] == "ProgressDeadlineExceeded"
    {
        return Health::Failed(said(progressing));
    }
    let wanted = number_or(&object["spec"]["replicas"], 1);
    let updated = number(&status["updatedReplicas"]);
    let old = number(&status["replicas"]) - updated;
    all_of([
        seen_by_controller(status),
        counted("updated", updated, wanted),
        if old > 0 {
            waiting(format!("{old} old replicas are still there"))
        } else {
            Health::Ready
        },
        counted("available", number(&status["availableReplicas"]), wanted),
    ])
}

fn stateful_set(object: &Value) -> Health {
    let status = &object["status"];
    let strategy = &object["spec"]["updateStrategy"];
    let wanted = number_or(&object["spec"]["replicas"], 1);
    if strategy["type"] == "OnDelete" {
        return seen_by_controller(status);
    }
    let partition = number(&strategy["rollingUpdate"]["partition"]);
    let to_update = (wanted - partition).max(0);
    let revision = if partition == 0
        && !status["updateRevision"].is_null()
        && status["currentRevision"] != status["updateRevision"]
    {
        waiting("replicas of the old revision are still there")
    } else {
        Health::Ready
    };
    all_of([
        seen_by_controller(status),
        counted("ready", number(&status["readyReplicas"]), wanted),
        if partition > 0 {
            counted("updated", number(&status["updatedReplicas"]), to_update)
        } else {
            Health::Ready
        },
        revision,
    ])
}

fn daemon_set(object: &Value) -> Health {
    let status = &object["status"];
    let wanted = number(&status["desiredNumberScheduled"]);
    let updated = if object["spec"]["updateStrategy"]["type"] == "OnDelete" {
        Health::Ready
    } else {
        counted("updated", number(&status["updatedNumberScheduled"]), wanted)
    };
    all_of([
        seen_by_controller(status),
        updated,
        counted("available", number(&status["numberAvailable"]), wanted),
    ])
}

/// A Job that has started is no longer waited for: it may run for days.
fn job(status: &Value) -> Health {
    if let Some(failed) = condition(status, "Failed").filter(|failed| failed["status"] == "True") {
        return Health::Failed(said(failed));
    }
    if status["startTime"].is_null() {
        return waiting("it has not started");
    }
    Health::Ready
}

fn pod(status: &Value) -> Health {
    match status["phase"].as_str() {
        Some("Succeeded") => Health::Ready,
        Some("Failed") => Health::Failed(said(status)),
        _ => {
            let stuck = status["containerStatuses"]
                .as_array()
                .into_iter()
                .flatten()
                .find_map(|container| {
                    let reason = container["state"]["waiting"]["reason"].as_str()?;
                    matches!(
                        reason,
                        "CrashLoopBackOff" | "ImagePullBackOff" | "ErrImagePull"
                    )
                    .then(|| format!("container {}: {reason}", container["name"]))
                });
            match stuck {
                Some(why) => Health::Failed(why),
                None => must_be_true(status, "Ready"),
            }
        }
    }
}

fn phase_is(status: &Value, wanted: &str) -> Health {
    match status["phase"].as_str() {
        Some(phase) if phase == wanted => Health::Ready,
        Some("Lost") => Health::Failed("its phase is Lost".to_owned()),
        Some(phase) => waiting(format!("its phase is {phase}")),
        None => waiting(format!("it is not {wanted} yet")),
    }
}

fn service(object: &Value) -> Health {
    let spec = &object["spec"];
    let ip = spec["clusterIP"].as_str().unwrap_or_default();
    if spec["type"] == "LoadBalancer" && ip.is_empty() {
        waiting("it has no cluster IP yet")
    } else {
        Health::Ready
    }
}

fn definition(status: &Value) -> Health {
    if let Some(names) =
        condition(status, "NamesAccepted").filter(|names| names["status"] == "False")
    {
        return Health::Failed(said(names));
    }
    must_be_true(status, "Established")
}

fn must_be_true(status: &Value, kind: &str) -> Health {
    match condition(status, kind) {
        Some(condition) if condition["status"] == "True" => Health::Ready,
        Some(condition) => waiting(format!("not {kind}: {}", said(condition))),
        None => waiting(format!("not {kind} yet")),
    }
}

/// The convention for custom resources: `Stalled` and `Reconciling` say it when it is not well, `Ready` if there is one.
fn by_conditions(status: &Value) -> Health {
    if let Some(stalled) =
        condition(status, "Stalled").filter(|stalled| stalled["status"] == "True")
    {
        return Health::Failed(said(stalled));
    }
    if let Some(busy) = condition(status, "Reconciling").filter(|busy| busy["status"] == "True") {
        return waiting(said(busy));
    }
    match condition(status, "Ready") {
        Some(ready) if ready["status"] != "True" => waiting(format!("not Ready: {}", said(ready))),
        _ => Health::Ready,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(group: &str, kind: &str, object: &Value) -> &'static str {
        match health(group, kind, object) {
            Health::Ready => "ready",
            Health::Waiting(why) => {
                assert!(!why.is_empty());
                "waiting"
            }
            Health::Failed(why) => {
                assert!(!why.is_empty());
                "failed"
            }
        }
    }

    #[test]
    fn workloads() {
        let up = json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 });
        for (group, kind, object, expected) in [
            (
                "apps",
                "Deployment",
                json!({ "spec": { "replicas": 2 }, "status": up }),
                "ready",
            ),
            (
                "apps",
                "Deployment",
                json!({ "spec": { "replicas": 0 }, "status": { "observedGeneration": 1 } }),
                "ready",
            ),
            ("apps", "Deployment", json!({ "spec": {} }), "waiting"),
            (
                "apps",
                "Deployment",
                json!({ "metadata": { "generation": 2 }, "spec": { "replicas": 2 }, "status": up }),
                "waiting",
            ),
            (
                "apps",
                "Deployment",
                json!({ "spec": {}, "status": { "observedGeneration": 1, "conditions": [
                { "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }] } }),
                "failed",
            ),
            (
                "apps",
                "StatefulSet",
                json!({ "spec": { "replicas": 1 }, "status": { "observedGeneration": 1, "readyReplicas": 1,
                "currentRevision": "a", "updateRevision": "b" } }),
                "waiting",
            ),
            (
                "apps",
                "StatefulSet",
                json!({ "spec": { "updateStrategy": { "type": "OnDelete" } }, "status": { "observedGeneration": 1 } }),
                "ready",
            ),
            (
                "apps",
                "DaemonSet",
                json!({ "spec": {}, "status": { "observedGeneration": 1, "desiredNumberScheduled": 2,
                "updatedNumberScheduled": 2, "numberAvailable": 1 } }),
                "waiting",
            ),
            ("batch", "Job", json!({ "status": {} }), "waiting"),
            (
                "batch",
                "Job",
                json!({ "status": { "startTime": "t" } }),
                "ready",
            ),
            (
                "batch",
                "Job",
                json!({ "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }] } }),
                "failed",
            ),
            (
                "",
                "Pod",
                json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } }),
                "ready",
            ),
            (
                "",
                "Pod",
                json!({ "status": { "phase": "Pending", "containerStatuses": [
                { "name": "c", "state": { "waiting": { "reason": "ImagePullBackOff" } } }] } }),
                "failed",
            ),
        ] {
            assert_eq!(told(group, kind, &object), expected, "{kind} {object}");
        }
    }

    #[test]
    fn everything_else() {
        let established =
            json!({ "status": { "conditions": [{ "type": "Established", "status": "True" }] } });
        for (group, kind, object, expected) in [
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                established,
                "ready",
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                json!({}),
                "waiting",
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                json!({ "status": { "conditions": [
                { "type": "NamesAccepted", "status": "False", "reason": "ListKindConflict" }] } }),
                "failed",
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
                "waiting",
            ),
            (
                "",
                "PersistentVolumeClaim",
                json!({ "status": { "phase": "Pending" } }),
                "waiting",
            ),
            (
                "",
                "PersistentVolumeClaim",
                json!({ "status": { "phase": "Lost" } }),
                "failed",
            ),
            ("", "ConfigMap", json!({}), "ready"),
            ("example.com", "Widget", json!({}), "ready"),
            (
                "example.com",
                "Widget",
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "message": "soon" }] } }),
                "waiting",
            ),
            (
                "example.com",
                "Widget",
                json!({ "status": { "conditions": [{ "type": "Stalled", "status": "True", "reason": "Broken" }] } }),
                "failed",
            ),
            (
                "example.com",
                "Widget",
                json!({ "status": "odd", "metadata": 3 }),
                "ready",
            ),
        ] {
            assert_eq!(told(group, kind, &object), expected, "{kind} {object}");
        }
    }

    #[test]
    fn what_can_only_be_ready_is_never_read() {
        for (group, kind, expected) in [
            ("", "ConfigMap", false),
            ("", "Secret", false),
            ("rbac.authorization.k8s.io", "Role", false),
            ("networking.k8s.io", "Ingress", false),
            ("apps", "Deployment", true),
            ("", "Namespace", true),
            ("example.com", "Widget", true),
            ("autoscaling", "HorizontalPodAutoscaler", false),
        ] {
            assert_eq!(is_told(group, kind), expected, "{kind}");
        }
    }
}
