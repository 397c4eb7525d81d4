//! Predicts from the conditions of a BundleDeployment whether it can still reach the expected
//! state.

use bundle_api::BundleDeployment;
use bundle_api::names::{condition, reason};
use bundle_core::diagnostic::{Code, Outcome, codes};

use super::conditions::{find, is_installed, split_code, unmet_conditions};

/// State to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The Bundle of the current template exists. No condition shows this state.
    Bundle,
    /// The content of the current spec is installed.
    Installed,
    /// The content is installed, and every object is healthy.
    Healthy,
    /// The object was deleted.
    Deleted,
}

/// Cause of a failure that needs a change by the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StopCause {
    /// Diagnostic code.
    pub(crate) code: Code,
    /// Message of the condition.
    pub(crate) message: String,
    /// Change that resolves the failure, if this change is known.
    pub(crate) hint: Option<String>,
}

/// Prediction for a BundleDeployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prediction {
    /// The state is reached.
    Done,
    /// The state is not reached yet. Contains the messages of unmet conditions.
    Waiting(Vec<String>),
    /// The reconciler cannot reach the state until a user changes the spec or the cluster.
    Stopped(StopCause),
}

/// A failure that the status reports. The code of the failure determines whether the failure is
/// permanent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedFailure<'a> {
    /// Kind of the object in `involvedObject` of the Event.
    pub(crate) kind: &'static str,
    /// Name of the object.
    pub(crate) name: &'a str,
    /// Message of the condition, without the code.
    pub(crate) message: &'a str,
    /// Code in the condition. Conditions of Bundles have no code, but their Events have one.
    pub(crate) code: Option<Code>,
}

/// Reasons of `Ready` that are not failures: an operation is in progress, or installed objects are
/// missing, changed or not ready.
const NON_FAILURE_REASONS: [&str; 9] = [
    "ObjectsMissing",
    "OutOfLine",
    "NotChecked",
    "Unhealthy",
    "Installing",
    "Removing",
    reason::UNPACKING,
    reason::UNPACK_PENDING,
    reason::WAITING_FOR_HEALTH,
];

/// Parts of API server messages. A message with one of these parts means that an object is invalid,
/// so a retry cannot succeed.
const PERMANENT: [&str; 7] = [
    "the API server cannot store: ",
    " is invalid: ",
    " is forbidden: ",
    "failed to create typed patch object",
    "field not declared in schema",
    "unknown field",
    "Invalid value: ",
];

/// Returns the failure of the current generation, if there is one.
pub(crate) fn reported_failure(item: &BundleDeployment) -> Option<ReportedFailure<'_>> {
    let ready = find(item, condition::READY)?;
    let is_current = ready.observed_generation == item.metadata.generation;
    if !is_current || ready.status == "True" || NON_FAILURE_REASONS.contains(&ready.reason.as_str())
    {
        return None;
    }
    let (message, code) = split_code(&ready.message);
    // RukPak's text: "Failed to unpack the NAME Bundle: …"
    let bundle = message
        .strip_prefix("Failed to unpack the ")
        .and_then(|rest| rest.split_once(" Bundle: "));
    Some(match bundle {
        Some((name, message)) => ReportedFailure {
            kind: "Bundle",
            name,
            message,
            code,
        },
        None => ReportedFailure {
            kind: "BundleDeployment",
            name: item.metadata.name.as_deref().unwrap_or_default(),
            message,
            code,
        },
    })
}

/// Predicts from the conditions whether the BundleDeployment reaches `goal`. `code` is the code of
/// the [`reported_failure`], if known.
pub(crate) fn predict(item: &BundleDeployment, goal: Goal, code: Option<Code>) -> Prediction {
    let is_true = |kind| find(item, kind).is_some_and(|found| found.status == "True");
    match goal {
        Goal::Installed if is_installed(item) => return Prediction::Done,
        Goal::Healthy if is_installed(item) && is_true(condition::HEALTHY) => {
            return Prediction::Done;
        }
        _ => {}
    }
    let stopped = reported_failure(item).and_then(|failed| {
        permanent_failure_code(item, &failed, code).map(|code| StopCause {
            code,
            message: failed.message.to_owned(),
            hint: None,
        })
    });
    stopped.map_or_else(
        || Prediction::Waiting(unmet_conditions(item, goal == Goal::Healthy)),
        Prediction::Stopped,
    )
}

/// Returns the code of the failure if the failure is permanent.
fn permanent_failure_code(
    item: &BundleDeployment,
    failed: &ReportedFailure<'_>,
    code: Option<Code>,
) -> Option<Code> {
    let ready = find(item, condition::READY)?;
    let is = |kind, status| {
        find(item, kind).is_some_and(|found| {
            found.status == status && found.observed_generation == item.metadata.generation
        })
    };
    match (ready.reason.as_str(), code) {
        // This failure is not permanent, because an approval can be created at any time.
        (_, Some(code)) if code == codes::install::NOT_APPROVED => None,
        (_, None) if is(condition::APPROVED, "False") => None,
        (reason::PAUSED, _) => Some(codes::cluster::STOPPED),
        // The former content is being installed. The result of the rollback is not known yet.
        (reason::ROLLING_BACK, _) => None,
        (reason::NOT_ADMITTED, _) => Some(codes::review::NOT_ADMITTED),
        ("ClassGone", _) => Some(codes::install::CLASS_GONE),
        ("RemovalRefused", code) => Some(code.unwrap_or(codes::cluster::STOPPED)),
        (reason::RIGHTS_WITHDRAWN, _) => Some(codes::install::RIGHTS_WITHDRAWN),
        (_, Some(code)) => match code.outcome {
            Outcome::Refused | Outcome::Usage => Some(code),
            Outcome::Unknown => None,
            Outcome::Failed => (code == codes::install::NOT_IMPLEMENTED
                || code == codes::install::INVALID_OBJECT
                || code == codes::install::DEADLINE_EXCEEDED
                || code == codes::install::ROLLED_BACK
                || code.id.starts_with("BUNDLE-FORMAT")
                || is_permanent_answer(failed.message))
            .then_some(code),
        },
        (_, None) if is(condition::AUTHORIZED, "False") => Some(codes::install::NOT_AUTHORIZED),
        (_, None) if is_permanent_answer(failed.message) => Some(codes::install::APPLY_FAILED),
        // Some failures of unpacking are retried. Only the code in the Event shows whether this
        // failure is retried.
        (reason::UNPACK_FAILED, None) => None,
        (_, None) if is(condition::PROGRESSING, "False") => Some(codes::cluster::STOPPED),
        _ => None,
    }
}

fn is_permanent_answer(message: &str) -> bool {
    PERMANENT.iter().any(|text| message.contains(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a BundleDeployment of generation 2 with these conditions: type, status, reason,
    /// message.
    fn item(conditions: &[(&str, &str, &str, &str)]) -> BundleDeployment {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason, message)| {
                json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 2,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "web", "generation": 2},
            "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {"type": "git"}}}},
            "status": {"observedGeneration": 2, "conditions": conditions}
        }))
        .unwrap()
    }

    fn failing(reason: &str, message: &str) -> BundleDeployment {
        item(&[
            ("Installed", "False", reason, message),
            ("Progressing", "True", reason, message),
            ("Ready", "False", reason, message),
        ])
    }

    fn stopped_by(outlook: Prediction) -> Option<&'static str> {
        match outlook {
            Prediction::Stopped(cause) => Some(cause.code.id),
            _ => None,
        }
    }

    #[test]
    fn stops_at_permanent_failures() {
        let install = |message| failing("InstallFailed", message);
        for (item, code, expected) in vec![
            (
                install("exists"),
                Some(codes::install::COLLISION),
                Some("BUNDLE-INSTALL-002"),
            ),
            (install("exists"), None, None),
            (
                failing("RolledBack", "web-2 was not healthy"),
                Some(codes::install::ROLLED_BACK),
                Some("BUNDLE-INSTALL-121"),
            ),
            (
                failing("RollingBack", "web-2 was not healthy"),
                Some(codes::install::ROLLED_BACK),
                None,
            ),
            (
                failing("ProgressDeadlineExceeded", "web-2 was not healthy"),
                Some(codes::install::DEADLINE_EXCEEDED),
                Some("BUNDLE-INSTALL-120"),
            ),
            (
                failing("WaitingForHealth", "phase 1 of 2: image is invalid: x"),
                None,
                None,
            ),
            (
                install("no such kind"),
                Some(codes::install::MISSING_KIND),
                None,
            ),
            (
                install("the server timed out"),
                Some(codes::install::APPLY_FAILED),
                None,
            ),
            (
                install("Service/web: Service \"web\" is invalid: spec.ports: Duplicate value"),
                Some(codes::install::APPLY_FAILED),
                Some("BUNDLE-INSTALL-004"),
            ),
            (
                install("waiting for approval"),
                Some(codes::install::NOT_APPROVED),
                None,
            ),
            (
                failing("Paused", "paused"),
                None,
                Some("BUNDLE-CLUSTER-007"),
            ),
            (
                failing("ClassGone", "gone"),
                None,
                Some("BUNDLE-INSTALL-021"),
            ),
            (
                failing("NotAdmitted", "no seal"),
                None,
                Some("BUNDLE-REVIEW-025"),
            ),
            (failing("Unhealthy", "Deployment web: 0 of 1"), None, None),
        ] {
            let found = stopped_by(predict(&item, Goal::Installed, code));
            assert_eq!(found, expected, "{item:?}");
        }
    }

    #[test]
    fn stops_at_objects_that_cannot_be_stored_and_waits_for_restored_ones() {
        let install = |message| failing("InstallFailed", message);
        for (item, code, expected) in [
            (failing("OutOfLine", "being restored: web"), None, None),
            (failing("ObjectsMissing", "missing: web"), None, None),
            (
                install("Deployment/web: .spec.colour: field not declared in schema"),
                Some(codes::install::INVALID_OBJECT),
                Some("BUNDLE-INSTALL-023"),
            ),
            (
                install("the API server cannot store: Deployment/web: .spec: expected map"),
                None,
                Some("BUNDLE-INSTALL-004"),
            ),
        ] {
            let found = stopped_by(predict(&item, Goal::Installed, code));
            assert_eq!(found, expected, "{item:?}");
        }
    }

    #[test]
    fn detects_missing_permissions_without_events() {
        let denied = item(&[
            ("Authorized", "False", "RequesterMayNot", "ana lacks rights"),
            ("Ready", "False", "InstallFailed", "ana lacks rights"),
        ]);
        let found = stopped_by(predict(&denied, Goal::Installed, None));
        assert_eq!(found, Some("BUNDLE-INSTALL-006"));
    }

    #[test]
    fn waits_for_an_approval() {
        let waiting = item(&[
            ("Approved", "False", "NotApproved", "waiting for approval"),
            (
                "Progressing",
                "False",
                "InstallFailed",
                "waiting for approval",
            ),
            ("Ready", "False", "InstallFailed", "waiting for approval"),
        ]);
        assert_eq!(stopped_by(predict(&waiting, Goal::Installed, None)), None);
    }

    #[test]
    fn failure_of_a_bundle_names_the_bundle() {
        let broken = item(&[(
            "Ready",
            "False",
            "UnpackFailed",
            "Failed to unpack the web-4f2a9c Bundle: there is no manifests folder",
        )]);
        let found = reported_failure(&broken).unwrap();
        assert_eq!((found.kind, found.name), ("Bundle", "web-4f2a9c"));
        assert_eq!(found.message, "there is no manifests folder");
        let code = codes::format::NO_MANIFESTS;
        let found = stopped_by(predict(&broken, Goal::Installed, Some(code)));
        assert_eq!(found, Some("BUNDLE-FORMAT-001"));
        assert_eq!(stopped_by(predict(&broken, Goal::Installed, None)), None);
    }

    #[test]
    fn conditions_of_an_earlier_generation_do_not_count() {
        let mut old = failing("Paused", "paused");
        old.metadata.generation = Some(3);
        assert!(reported_failure(&old).is_none());
    }

    #[test]
    fn health_is_required_only_for_the_goal_healthy() {
        let of_old_content = item(&[
            ("Installed", "Unknown", "Installing", "3 of 9 objects"),
            ("Healthy", "False", "Unhealthy", "Deployment web: 0 of 1"),
            ("Ready", "False", "Unhealthy", "Deployment web: 0 of 1"),
        ]);
        let obstacles = |goal| match predict(&of_old_content, goal, None) {
            Prediction::Waiting(obstacles) => obstacles,
            other => panic!("{other:?}"),
        };
        for goal in [Goal::Installed, Goal::Deleted] {
            assert_eq!(
                obstacles(goal),
                ["Installed=Unknown Installing: 3 of 9 objects"]
            );
        }
        let healthy = obstacles(Goal::Healthy);
        assert_eq!(healthy, ["Healthy=False Unhealthy: Deployment web: 0 of 1"]);
    }

    #[test]
    fn goal_healthy_requires_installed_and_healthy() {
        let with = |health| {
            item(&[
                ("Installed", "True", "InstallationSucceeded", ""),
                ("Healthy", health, "X", "Deployment web: 0 of 1"),
                ("Ready", health, "Unhealthy", ""),
            ])
        };
        assert_eq!(
            predict(&with("False"), Goal::Installed, None),
            Prediction::Done
        );
        assert!(matches!(
            predict(&with("False"), Goal::Healthy, None),
            Prediction::Waiting(_)
        ));
        assert_eq!(
            predict(&with("True"), Goal::Healthy, None),
            Prediction::Done
        );
    }
}
