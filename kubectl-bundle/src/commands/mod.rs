//! Verbs, one file each. They get settings and a printer, and do not use clap or the environment.

pub(crate) mod deployments;
pub(crate) mod package;
pub(crate) mod program;
pub(crate) mod signing;
pub(crate) mod transfer;
pub(crate) mod webhook;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::{Failure, Outcome};

/// A command for an artifact in a registry or for a file.
pub(crate) enum ArtifactOrFile<A, F> {
    /// `sign REFERENCE`
    Artifact(A),
    /// `sign FILE --bundle`
    File(F),
}

/// Runs a future. Only verbs that use the network create a runtime.
pub(crate) fn in_runtime(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::caused(
                Finding::error(
                    codes::usage::NO_RESOURCES,
                    "cannot start the runtime for network access",
                ),
                &error,
            )
        })?
        .block_on(work)
}
