//! Reasons why a repository provides no valid content, and their findings.

use std::io;

use bundle_core::diagnostic::{Finding, Outcome, codes};
use bundle_core::plan::retry::source::SourceFailure;
use bundle_core::reference::Digest;

use super::credentials::GitSecretError;
use super::host::HostError;
use crate::clients::git::GitError;

/// The reason why a repository provides no valid content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitSourceError {
    /// The Secret with credentials cannot be used.
    #[error("source bundle content: {0}")]
    Secret(#[from] GitSecretError),
    /// The host has an address that is not allowed, or its name cannot be resolved.
    #[error("source bundle content: {0}")]
    Host(#[from] HostError),
    /// A command of git failed.
    #[error("source bundle content: git {doing} {from}: {error}")]
    Git {
        doing: String,
        from: String,
        error: GitError,
    },
    /// The files in the commit are not a valid bundle.
    #[error("source bundle content: commit {commit} of {repository} {why}")]
    Content {
        commit: String,
        repository: String,
        why: String,
    },
    /// The files of the commit differ from the recorded content.
    #[error(
        "source bundle content: commit {commit} of {repository} now has content {found} in the directory, but content {expected} was recorded: only the recorded content is accepted"
    )]
    Changed {
        commit: String,
        repository: String,
        expected: Digest,
        found: Digest,
    },
    /// The sink could not store a file.
    #[error("cannot store the content in the cache: {0}")]
    Unstorable(io::Error),
}

impl GitSourceError {
    /// Returns the kind of the failure.
    pub(crate) fn failure(&self) -> SourceFailure {
        match self {
            _ if self.finding().code.outcome == Outcome::Unknown => SourceFailure::Unavailable,
            Self::Content { .. } => SourceFailure::Content,
            Self::Git { error, .. } if error.is_about_content() => SourceFailure::Content,
            _ => SourceFailure::Other,
        }
    }

    /// Returns the finding for the requester of the content.
    pub(crate) fn finding(&self) -> Finding {
        let message = self.to_string();
        let (code, hint) = match self {
            Self::Secret(_) => (
                codes::install::GIT_CREDENTIALS,
                "correct or create the Secret in the system namespace; the log of the pod has the reason",
            ),
            Self::Host(error) => return error.finding(message),
            Self::Git { error, .. } => {
                let message = match error {
                    GitError::Io(source) => format!("{message}: {source}"),
                    _ => message,
                };
                return error.finding(message);
            }
            Self::Content { .. } => (
                codes::install::GIT_CONTENT,
                "set spec.source.git.directory to a folder that contains only the bundle, as regular files",
            ),
            Self::Changed { .. } => (
                codes::install::CONTENT_CHANGED,
                "create another Bundle, or change the template of the BundleDeployment",
            ),
            Self::Unstorable(_) => (
                codes::install::CACHE_FULL,
                "the operation is retried automatically",
            ),
        };
        Finding::error(code, message).hint(hint)
    }
}
