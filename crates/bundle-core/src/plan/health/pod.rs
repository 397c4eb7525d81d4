//! Health of Pods: phase, and containers that cannot start.

use serde_json::Value;

use super::Health;
use super::rules::{condition, must_be_true, phase_must_be, reason_and_message};

pub(super) fn pod(object: &Value) -> Health {
    let status = &object["status"];
    match status["phase"].as_str() {
        Some("Succeeded") => Health::Ready,
        Some("Failed") => Health::Failed(failure(status)),
        _ => match blocked_container(status) {
            Some(why) => Health::Failed(why),
            None => scheduled(object),
        },
    }
}

fn scheduled(object: &Value) -> Health {
    match condition(object, "PodScheduled") {
        Some(condition)
            if condition["status"] == "False" && condition["reason"] == "Unschedulable" =>
        {
            Health::waiting(reason_and_message(condition))
        }
        _ if object["status"]["phase"] == "Running" => must_be_true(object, "Ready"),
        _ => phase_must_be(object, "Running"),
    }
}

fn containers(status: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .filter_map(|list| status[list].as_array())
        .flatten()
}

/// Returns the reason of a failed Pod: the message of the Pod. If the Pod has no message, returns
/// the exit code of the failed container.
fn failure(status: &Value) -> String {
    let own = reason_and_message(status);
    if !own.is_empty() {
        return own;
    }
    containers(status)
        .find_map(|container| {
            let code = container["state"]["terminated"]["exitCode"].as_i64()?;
            let name = container["name"].as_str().unwrap_or_default();
            (code != 0).then(|| format!("container {name} failed with exit code {code}"))
        })
        .unwrap_or_else(|| "its phase is Failed".to_owned())
}

/// Returns a container that the kubelet cannot start, with the reason; `None` if the kubelet can
/// start all containers. Kubernetes has no list of such reasons. Therefore this function compares
/// the first or last letters of the reason.
fn blocked_container(status: &Value) -> Option<String> {
    containers(status).find_map(|container| {
        let waiting = &container["state"]["waiting"];
        let reason = waiting["reason"].as_str()?;
        let blocked =
            reason.starts_with("Err") || reason.ends_with("Error") || reason.ends_with("BackOff");
        let name = container["name"].as_str().unwrap_or_default();
        blocked.then(|| format!("container {name}: {}", reason_and_message(waiting)))
    })
}
