//! Health of installed objects, by the rules of kstatus
//! (`sigs.k8s.io/cli-utils/pkg/kstatus/status`). Flux and kpt use kstatus too. [`kinds::KINDS`]
//! contains the rules of built-in kinds. [`differences::DIFFERENCES`] contains the differences from
//! other projects. `docs/reference/health.md` is generated from both tables.

pub mod differences;
pub mod kinds;
mod pod;
mod probe;
mod rules;
mod workload;

use serde_json::Value;

use crate::version::apis;

pub use probe::{has_probe, probed_health};

/// Health of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The object is ready, or its kind has no health rule.
    Ready,
    /// The object is not ready yet. The text contains the reason.
    Waiting(String),
    /// The object has failed. The text contains the message of the controller, if the object has
    /// such a message.
    Failed(String),
}

impl Health {
    fn waiting(why: impl Into<String>) -> Self {
        Self::Waiting(why.into())
    }
}

/// Returns `true` if objects of this kind can be unready. Objects of all other kinds are not read
/// when they change.
pub fn has_health(group: &str, kind: &str) -> bool {
    match kinds::find(group, kind) {
        Some(known) => known.rule.is_some(),
        None => apis::is_custom(group),
    }
}

/// Returns the health of an object that was read by its name. `uid` is the uid of the installed
/// object, and `health` returns the health of that object. An object with another uid can belong to
/// another owner. Such an object counts as missing, and the reason contains no data of the object.
pub fn installed_health(
    object: &Value,
    uid: Option<&str>,
    health: impl FnOnce(&Value) -> Health,
) -> Health {
    let found = object.pointer("/metadata/uid").and_then(Value::as_str);
    if found.is_some_and(|found| !found.is_empty()) && found == uid {
        health(object)
    } else {
        Health::waiting("does not exist: another object has its name")
    }
}

/// Returns the health of `object`. `group` and `kind` are arguments because objects that are read
/// as metadata do not contain these fields.
pub fn health(group: &str, kind: &str, object: &Value) -> Health {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Health::waiting("is being deleted");
    }
    let rule = match kinds::find(group, kind) {
        Some(known) => known.rule,
        None => Some(rules::ready_condition as kinds::Rule),
    };
    let Some(rule) = rule else {
        return Health::Ready;
    };
    match rules::generic(object) {
        Health::Ready => rule(object),
        other => other,
    }
}

#[cfg(test)]
mod suite_tests;
#[cfg(test)]
mod tests;
