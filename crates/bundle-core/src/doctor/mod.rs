//! Diagnosis of an installation: each function converts observed facts to the results of one check.
//! `kubectl bundle doctor` collects the facts and prints the results.

pub mod admission;
pub mod authority;
pub mod client;
pub mod definitions;
pub mod permissions;
pub mod policies;
pub mod workload;

use serde::Serialize;

use crate::diagnostic::{Code, Finding, Findings, Outcome, Severity, codes};

/// State of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// The check passed.
    Ok,
    /// The check passed with a warning.
    Warning,
    /// The check failed.
    Problem,
    /// The check could not run: the caller lacks a permission, or a dependency did not respond.
    Unknown,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// Name of the check, such as `registrations`.
    pub check: &'static str,
    /// State of the check.
    pub state: CheckState,
    /// Object, file or address that was examined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Observation, in one sentence without full stop.
    pub message: String,
    /// Code in the catalogue of diagnostics; `None` for a passed check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Next step for the user; `None` if no step is necessary or known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl CheckResult {
    /// Returns the result of a passed check.
    pub fn ok(check: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            check,
            state: CheckState::Ok,
            subject: subject.into(),
            message: message.into(),
            code: None,
            hint: None,
        }
    }

    /// Returns the result of a check that found a warning or a problem. The subject of the result
    /// is the location of the finding.
    pub fn of(check: &'static str, finding: Finding) -> Self {
        Self {
            check,
            state: match finding.severity {
                Severity::Error => CheckState::Problem,
                Severity::Warning => CheckState::Warning,
            },
            subject: finding.place.to_string(),
            message: finding.message,
            code: Some(finding.code),
            hint: finding.hint,
        }
    }

    /// Returns the result of a check that did not run because of an earlier result.
    pub fn skipped(
        check: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            state: CheckState::Unknown,
            ..Self::ok(check, subject, message)
        }
    }

    /// Returns the result of a check for which the caller lacks a permission.
    pub fn forbidden(
        check: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            hint: Some("run the command as a user with the permission".to_owned()),
            ..Self::skipped(check, subject, message)
        }
    }

    /// Returns the result of a check whose dependency did not respond.
    pub fn no_response(
        check: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: Some(codes::doctor::NO_RESPONSE),
            hint: Some("run the command again; --timeout sets a longer deadline".to_owned()),
            ..Self::skipped(check, subject, message)
        }
    }
}

/// An observed object or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed<T> {
    /// The object exists.
    Found(T),
    /// The object does not exist.
    Missing,
    /// The caller has no permission to read the object. Contains the message of the API server.
    Forbidden(String),
    /// The request failed for another reason.
    Failed(String),
}

impl<T> Observed<T> {
    /// Applies a function to the value.
    pub fn map<U>(self, apply: impl FnOnce(T) -> U) -> Observed<U> {
        match self {
            Self::Found(value) => Observed::Found(apply(value)),
            Self::Missing => Observed::Missing,
            Self::Forbidden(message) => Observed::Forbidden(message),
            Self::Failed(message) => Observed::Failed(message),
        }
    }

    /// Returns the same variant with a reference to its value.
    pub fn as_ref(&self) -> Observed<&T> {
        match self {
            Self::Found(value) => Observed::Found(value),
            Self::Missing => Observed::Missing,
            Self::Forbidden(message) => Observed::Forbidden(message.clone()),
            Self::Failed(message) => Observed::Failed(message.clone()),
        }
    }

    /// Returns all values, or the first result without a value.
    pub fn all(observed: impl IntoIterator<Item = Self>) -> Observed<Vec<T>> {
        let mut values = Vec::new();
        for one in observed {
            match one {
                Self::Found(value) => values.push(value),
                other => return other.map(|_| Vec::new()),
            }
        }
        Observed::Found(values)
    }

    /// Returns the value. If there is no value, returns the result of the check. This result is the
    /// finding that `missing` returns if the object does not exist, and otherwise an unknown
    /// result.
    fn found_or(
        self,
        check: &'static str,
        subject: &str,
        missing: impl FnOnce() -> Finding,
    ) -> Result<T, CheckResult> {
        match self {
            Self::Found(value) => Ok(value),
            Self::Missing => Err(CheckResult::of(check, missing())),
            Self::Forbidden(message) => Err(CheckResult::forbidden(check, subject, message)),
            Self::Failed(message) => Err(CheckResult::no_response(check, subject, message)),
        }
    }
}

/// Returns the most permanent outcome ([`Findings::outcome`]) of all problems and of all checks
/// without a response. Returns `None` if there is no problem and no check without a response.
/// Warnings and missing permissions are ignored.
pub fn outcome(results: &[CheckResult]) -> Option<Outcome> {
    let counted = results
        .iter()
        .filter(|result| matches!(result.state, CheckState::Problem | CheckState::Unknown));
    let errors = counted.filter_map(|result| Some(Finding::error(result.code?, "")));
    errors.collect::<Findings>().outcome()
}

#[cfg(test)]
mod messages;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_that_of_problems_and_missing_responses() {
        let problem = |code| CheckResult::of("a", Finding::error(code, "b"));
        let warning = CheckResult::of(
            "a",
            Finding::warning(codes::doctor::CALLER_PERMISSIONS, "b"),
        );
        let ok = CheckResult::ok("a", "b", "c");
        let forbidden = CheckResult::forbidden("a", "b", "c");
        let silent = CheckResult::no_response("a", "b", "c");
        for (results, expected) in [
            (vec![], None),
            (vec![ok.clone(), warning, forbidden.clone()], None),
            (vec![ok, silent.clone()], Some(Outcome::Unknown)),
            (
                vec![silent, problem(codes::doctor::NOT_READY)],
                Some(Outcome::Failed),
            ),
            (
                vec![forbidden, problem(codes::cluster::UNREACHABLE)],
                Some(Outcome::Unknown),
            ),
        ] {
            assert_eq!(outcome(&results), expected, "{results:?}");
        }
    }

    #[test]
    fn subject_of_a_problem_is_the_location_of_its_finding() {
        let finding = Finding::error(codes::doctor::NOT_READY, "0 of 2 pods are ready")
            .about("deployment bundle-webhook")
            .hint("look at the pods");
        let result = CheckResult::of("pods", finding);
        assert_eq!(result.subject, "deployment bundle-webhook");
        assert_eq!(
            serde_json::to_value(&result).unwrap(),
            serde_json::json!({
                "check": "pods", "state": "problem", "subject": "deployment bundle-webhook",
                "message": "0 of 2 pods are ready", "code": "BUNDLE-DOCTOR-007",
                "hint": "look at the pods",
            })
        );
    }
}
