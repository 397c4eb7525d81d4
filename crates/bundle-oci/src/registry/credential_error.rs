//! Errors of stored credentials.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use docker_credential::CredentialRetrievalError;

/// Reason why a pull secret is not used. The text is the same for all causes, so that a requester
/// cannot find out which Secrets exist.
pub const UNUSABLE_PULL_SECRET: &str =
    "it does not exist, is not of type kubernetes.io/dockerconfigjson, or cannot be read";

/// Reason why credentials cannot be read from one of their sources.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialError {
    /// A pull secret.
    #[error("a pull secret: {UNUSABLE_PULL_SECRET}")]
    PullSecret,
    /// A credential file that cannot be read.
    #[error("{0}")]
    Unreadable(#[source] Arc<io::Error>),
    /// A credential file with invalid content, or a credential helper that this file names.
    #[error("`{}`: {source}", .file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Reason.
        source: CredentialFileError,
    },
    /// The task that reads the credentials panicked or was cancelled.
    #[error("the lookup stopped unexpectedly")]
    Stopped,
}

/// Reason why a credential file or its credential helper returns no login.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialFileError {
    /// The file is not a configuration file of docker.
    #[error("the file is not a docker configuration")]
    NotAConfiguration,
    /// The credential helper failed.
    #[error("the credential helper `{helper}` failed: {output}")]
    HelperFailed {
        /// Name of the program.
        helper: String,
        /// Beginning of the output of the program.
        output: String,
    },
    /// The credential helper could not be started. Contains its name in backticks.
    #[error("cannot start the credential helper {0}")]
    HelperNotStarted(String),
    /// The entry for the registry, or the response of the credential helper, is invalid.
    #[error("{0}")]
    Invalid(#[source] Arc<CredentialRetrievalError>),
}
