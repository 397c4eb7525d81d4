//! Conditions of a BundleDeployment after a reconcile that installs nothing: the object was not
//! admitted, its class is missing, or the object is being deleted.

use bundle_api::names::condition;

use super::NOT_LOOKED_AT;
use crate::plan::conditions::{ConditionChange, ConditionStatus};
use crate::plan::removal::REMOVING;

/// Returns the conditions of an object that the webhook did not admit, or whose spec is invalid.
/// `is_installed` is true if the status of the object reports installed content.
pub fn not_admitted(reason: &str, message: &str, is_installed: bool) -> Vec<ConditionChange> {
    let mut conditions = vec![ConditionChange::new(
        condition::HAS_VALID_BUNDLE,
        ConditionStatus::Unknown,
        reason,
        message,
    )];
    if !is_installed {
        conditions.push(ConditionChange::new(
            condition::INSTALLED,
            ConditionStatus::False,
            reason,
            message,
        ));
    }
    for kind in [condition::AUTHORIZED, condition::APPROVED] {
        let change =
            ConditionChange::default(kind, ConditionStatus::Unknown, reason, NOT_LOOKED_AT);
        conditions.push(change);
    }
    conditions.extend(stopped(reason, message));
    conditions
}

/// Returns the conditions of an object whose class does not exist or is invalid. Installed content
/// is not removed.
pub fn class_missing(reason: &str, message: &str) -> Vec<ConditionChange> {
    stopped(reason, message)
}

fn stopped(reason: &str, message: &str) -> Vec<ConditionChange> {
    let unknown = |kind| {
        ConditionChange::new(
            kind,
            ConditionStatus::Unknown,
            reason,
            NOT_LOOKED_AT.to_owned(),
        )
    };
    let stopped = |kind| ConditionChange::new(kind, ConditionStatus::False, reason, message);
    vec![
        unknown(condition::HEALTHY),
        unknown(condition::DRIFTED),
        stopped(condition::PROGRESSING),
        stopped(condition::READY),
    ]
}

/// Returns the conditions of an object whose deletion is not complete.
pub fn removing(reason: &str, message: &str) -> Vec<ConditionChange> {
    let progressing = if reason == REMOVING {
        ConditionStatus::True
    } else {
        ConditionStatus::False
    };
    vec![
        ConditionChange::new(condition::PROGRESSING, progressing, reason, message),
        ConditionChange::new(condition::READY, ConditionStatus::False, reason, message),
    ]
}
