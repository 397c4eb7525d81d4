//! The health of installed objects: kstatus's rules for the built-in kinds, its conventions for custom resources.
//!
//! The rules are those of kstatus (`sigs.k8s.io/cli-utils/pkg/kstatus/status`), which Flux and kpt use too. Where a kind is judged
//! otherwise, its entry in [`kinds::KINDS`] says so and why; `docs/reference/health.md` is generated from that table.

pub mod differences;
pub mod kinds;
mod pod;
mod rules;
mod workload;

use serde_json::Value;

use crate::version::apis;

/// The health of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The object is up, or its kind has nothing to wait for.
    Ready,
    /// The object is not up yet; the text says what is missing.
    Waiting(String),
    /// The object's controller has given up; the text is the controller's own where it gives one.
    Failed(String),
}

impl Health {
    fn waiting(why: impl Into<String>) -> Self {
        Self::Waiting(why.into())
    }
}

/// Returns whether objects of this kind can be anything but ready. Only those are read when they change.
pub fn has_health(group: &str, kind: &str) -> bool {
    match kinds::find(group, kind) {
        Some(known) => known.rule.is_some(),
        None => apis::is_custom(group),
    }
}

/// Returns the health of `object`. `group` and `kind` are arguments because objects read as metadata lack them.
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
