//! Why a command did not do what was asked: findings, the API server's own answer, or a reader that went away.

use std::io;

use bundle_core::diagnostic::{Finding, Findings};
use kube::core::Status;

use crate::exit::Exit;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Findings of our rules and edges, with what lay beneath the last one.
    Findings {
        /// In the order in which a person should read them.
        findings: Findings,
        /// The chain of causes, outermost first.
        causes: Vec<String>,
    },
    /// The API server said no; told in kubectl's own words.
    Server(Box<Status>),
    /// Everything is said already on stdout; only the exit code is left.
    Said(Exit),
    /// Whoever read stdout has gone: nothing more to say.
    BrokenPipe,
}

/// What a command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A finding, and the error beneath it with all that lies beneath that.
    pub(crate) fn caused(finding: Finding, source: &dyn std::error::Error) -> Self {
        let mut causes: Vec<String> = Vec::new();
        let mut next = Some(source);
        while let Some(error) = next {
            let text = error.to_string();
            // Many libraries repeat their source in their own text; say it once.
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

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Findings { findings, .. } => findings.outcome().map_or(Exit::Failed, Exit::from),
            Self::Server(status) => crate::refusal::exit(status),
            Self::Said(exit) => *exit,
            Self::BrokenPipe => Exit::Done,
        }
    }

    /// Returns whether an apply was refused because somebody wrote the object since it was read.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Server(status)
            if status.code == 409 && !status.message.starts_with("Apply failed"))
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
    /// Stdout could not be written.
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

/// The same finding, with the file that it is about.
pub(crate) fn in_file(finding: Finding, path: &std::path::Path) -> Finding {
    finding.in_file(path.display().to_string())
}

#[cfg(test)]
mod tests {
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
    fn stale_writes_are_told_from_fields_of_others() {
        let stale = conflict(
            "Operation cannot be fulfilled on bundledeployments.core.rukpak.io \"web\": the object has been modified",
        );
        let owned = conflict("Apply failed with 1 conflict: conflict with \"helm\": .spec.paused");
        for (status, expected) in [(stale, true), (owned, false)] {
            assert_eq!(Failure::Server(Box::new(status)).is_stale(), expected);
        }
    }
}
