//! Generic health rules, and the rules of kinds that are not workloads.

use serde_json::Value;

use super::Health;
use crate::text::bounded;

/// Maximum length of the reason of a condition, and of a phase, in a result, in bytes. Every user
/// who can write the status of an object can choose these texts.
const MAX_REASON: usize = 256;
/// Maximum length of the message of a condition in a result, in bytes.
const MAX_MESSAGE: usize = 1 << 10;

/// Returns the condition of this type in `status.conditions`; `None` if the condition does not
/// exist.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Returns `true` if the condition of that type has this status.
pub(super) fn condition_is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == status)
}

/// Joins reason and message of a condition. Both are optional, and are shortened.
pub(super) fn reason_and_message(condition: &Value) -> String {
    let text = |key: &str, limit| bounded(condition[key].as_str().unwrap_or_default(), limit);
    let (reason, message) = (text("reason", MAX_REASON), text("message", MAX_MESSAGE));
    match (reason.as_str(), message.as_str()) {
        ("", _) => message,
        (_, "") => reason,
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// Returns the health by the rules for objects of every kind. An object is ready if the latest
/// generation is observed, and neither of the conditions `Reconciling` and `Stalled` is `True`.
pub(super) fn generic(object: &Value) -> Health {
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let conditions = object["status"]["conditions"].as_array();
    for condition in conditions.into_iter().flatten() {
        if condition["status"] != "True" {
            continue;
        }
        match condition["type"].as_str() {
            Some("Reconciling") => return Health::waiting(reason_and_message(condition)),
            Some("Stalled") => return Health::Failed(reason_and_message(condition)),
            _ => {}
        }
    }
    Health::Ready
}

/// Returns the health of an object whose controller has not observed the latest generation; `None`
/// for other objects.
pub(super) fn unobserved(object: &Value) -> Option<Health> {
    let generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64);
    let observed = object["status"]["observedGeneration"].as_i64();
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed != generation
    {
        return Some(Health::waiting(format!(
            "its controller has seen generation {observed} of {generation}"
        )));
    }
    None
}

/// Returns the health of a custom resource, which is ready if its condition `Ready` is absent or
/// `True`.
pub(super) fn ready_condition(object: &Value) -> Health {
    match condition(object, "Ready") {
        Some(_) => must_be_true(object, "Ready"),
        None => Health::Ready,
    }
}

/// Returns the health of an object that is ready only if its condition of this type is `True`. An
/// object without this condition is not ready.
pub(super) fn must_be_true(object: &Value, kind: &str) -> Health {
    match condition(object, kind) {
        Some(condition) if condition["status"] == "True" => Health::Ready,
        Some(condition) => {
            Health::waiting(format!("not {kind}: {}", reason_and_message(condition)))
        }
        None => Health::waiting(format!("not {kind} yet")),
    }
}

/// Returns the health of an object that is ready only if it has `observedGeneration`. The generic
/// rules accept an object without `observedGeneration`.
pub(super) fn observed(object: &Value) -> Health {
    if object["status"]["observedGeneration"].is_null() {
        Health::waiting("its controller has not seen it yet")
    } else {
        Health::Ready
    }
}

pub(super) fn namespace(object: &Value) -> Health {
    phase_must_be(object, "Active")
}

pub(super) fn claim(object: &Value) -> Health {
    if object["status"]["phase"] == "Lost" {
        return Health::Failed("its phase is Lost: its volume no longer exists".into());
    }
    phase_must_be(object, "Bound")
}

pub(super) fn phase_must_be(object: &Value, wanted: &str) -> Health {
    match object["status"]["phase"].as_str() {
        Some(phase) if phase == wanted => Health::Ready,
        Some(phase) => {
            let phase = bounded(phase, MAX_REASON);
            Health::waiting(format!("its phase is {phase}"))
        }
        None => Health::waiting(format!("it is not {wanted} yet")),
    }
}

pub(super) fn service(object: &Value) -> Health {
    let spec = &object["spec"];
    let address = spec["clusterIP"].as_str().unwrap_or_default();
    if spec["type"] == "LoadBalancer" && address.is_empty() {
        Health::waiting("it has no cluster IP yet")
    } else {
        Health::Ready
    }
}

pub(super) fn definition(object: &Value) -> Health {
    if let Some(names) =
        condition(object, "NamesAccepted").filter(|names| names["status"] == "False")
    {
        return Health::Failed(reason_and_message(names));
    }
    match condition(object, "Established") {
        Some(established)
            if established["status"] == "False" && established["reason"] != "Installing" =>
        {
            Health::Failed(reason_and_message(established))
        }
        _ => must_be_true(object, "Established"),
    }
}

pub(super) fn api_service(object: &Value) -> Health {
    must_be_true(object, "Available")
}
