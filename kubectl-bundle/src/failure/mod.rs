//! Failures of a command: findings, an error of the API server, or a closed stdout.

pub(crate) mod api_server;
pub(crate) mod exit;

use std::io;

use bundle_core::diagnostic::{Finding, Findings};
use kube::core::Status;

use exit::Exit;

/// Failure of a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Findings, and the causes of the last finding.
    Findings {
        /// Findings, in the order in which they are printed.
        findings: Findings,
        /// Chain of causes, outermost first.
        causes: Vec<String>,
    },
    /// Error status of the API server, printed like kubectl does.
    Server(Box<Status>),
    /// The command has printed all output. Only the exit code is returned.
    Reported(Exit),
    /// The program that reads stdout has closed the pipe. No error is printed.
    BrokenPipe,
}

/// Result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Returns a failure from a finding and the chain of errors that caused it.
    pub(crate) fn caused(finding: Finding, source: &dyn std::error::Error) -> Self {
        let mut causes: Vec<String> = Vec::new();
        let mut next = Some(source);
        while let Some(error) = next {
            let text = error.to_string();
            // Many libraries include the message of the cause in their own message. In this case,
            // the cause is not printed again.
            if !causes.last().is_some_and(|last| last.contains(&text)) {
                causes.push(text);
            }
            next = error.source();
        }
        Self::Findings {
            findings: finding.into(),
            causes,
        }
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Findings { findings, .. } => findings.outcome().map_or(Exit::Failed, Exit::from),
            Self::Server(status) => crate::failure::api_server::exit(status),
            Self::Reported(exit) => *exit,
            Self::BrokenPipe => Exit::Done,
        }
    }

    /// Adds kind and name of an object to the message. If the message already contains the name, it
    /// is not changed.
    #[must_use]
    pub(crate) fn about(self, kind: &str, name: &str) -> Self {
        let subject = format!("{kind} {name}");
        match self {
            Self::Findings { findings, causes } => Self::Findings {
                findings: findings
                    .into_iter()
                    .map(|finding| {
                        if finding.to_string().contains(&subject) {
                            finding
                        } else {
                            finding.about(&subject)
                        }
                    })
                    .collect(),
                causes,
            },
            Self::Server(mut status) => {
                // The API server writes names in quotes.
                if !api_server::message(&status).contains(&format!("{name:?}")) {
                    status.message = format!("{subject}: {}", status.message);
                }
                Self::Server(status)
            }
            other => other,
        }
    }

    /// Returns `true` if an apply failed because the object changed after it was read.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Server(status)
            if status.code == 409 && !api_server::is_apply_conflict(status))
    }
}

impl From<Finding> for Failure {
    fn from(finding: Finding) -> Self {
        Findings::from(finding).into()
    }
}

impl From<Findings> for Failure {
    fn from(findings: Findings) -> Self {
        Self::Findings {
            findings,
            causes: Vec::new(),
        }
    }
}

impl Failure {
    /// Returns the failure for an error of stdout.
    pub(crate) fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::caused(
            Finding::error(
                bundle_core::diagnostic::codes::usage::FILE_UNWRITABLE,
                "cannot write to standard output",
            ),
            error,
        )
    }
}

/// Adds the file to the finding.
pub(crate) fn in_file(finding: Finding, path: &std::path::Path) -> Finding {
    finding.in_file(path.display().to_string())
}

/// Returns the text of a failure for a terminal without colours.
#[cfg(test)]
pub(crate) fn rendered(failure: &Failure) -> String {
    let Failure::Findings { findings, causes } = failure else {
        return String::new();
    };
    let text = crate::ui::findings::findings(findings, causes);
    anstream::adapter::strip_str(&text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conflict(message: &str) -> Status {
        Status {
            code: 409,
            reason: "Conflict".to_owned(),
            message: message.to_owned(),
            ..Status::default()
        }
    }

    #[test]
    fn stale_writes_are_distinguished_from_field_conflicts() {
        let stale = conflict(
            "Operation cannot be fulfilled on bundledeployments.core.rukpak.io \"web\": the object has been modified",
        );
        let mut owned = conflict("Apply failed with 1 conflict");
        let cause = json!({"reason": "FieldManagerConflict", "field": ".spec.paused"});
        owned.details = serde_json::from_value(json!({"causes": [cause]})).unwrap();
        for (status, expected) in [(stale, true), (owned, false)] {
            assert_eq!(Failure::Server(Box::new(status)).is_stale(), expected);
        }
    }

    #[test]
    fn failure_of_one_of_several_objects_has_its_name_once() {
        let server = |message: &str| Failure::Server(Box::new(conflict(message)));
        let finding = |message: &str| -> Failure {
            Finding::error(
                bundle_core::diagnostic::codes::cluster::UNREACHABLE,
                message,
            )
            .into()
        };
        for (failure, expected) in [
            (
                server("denied the request"),
                "Error from server (Conflict): bundledeployment web: denied the request",
            ),
            (
                server("bundledeployments.core.rukpak.io \"web\" is locked"),
                "Error from server (Conflict): bundledeployments.core.rukpak.io \"web\" is locked",
            ),
            (
                finding("no response"),
                "error: bundledeployment web: no response [BUNDLE-CLUSTER-001]\n",
            ),
            (
                finding("bundledeployment web was not gone"),
                "error: bundledeployment web was not gone [BUNDLE-CLUSTER-001]\n",
            ),
        ] {
            let failure = failure.about("bundledeployment", "web");
            let text = match &failure {
                Failure::Server(status) => api_server::message(status),
                other => rendered(other),
            };
            assert_eq!(text, expected);
        }
    }
}
