//! Verbs, one file each. They get settings and a printer, and do not use clap or the environment.

pub(crate) mod attest;
pub(crate) mod blob;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deploy;
mod deployment;
pub(crate) mod get;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod install;
pub(crate) mod keys;
mod listing;
pub(crate) mod load;
pub(crate) mod outlook;
pub(crate) mod policy;
pub(crate) mod pull;
pub(crate) mod push;
mod removed_api;
pub(crate) mod render;
pub(crate) mod save;
pub(crate) mod sign;
pub(crate) mod status;
pub(crate) mod trust;
pub(crate) mod uninstall;
pub(crate) mod unpack;
pub(crate) mod verify;
pub(crate) mod version;
mod waiting;
pub(crate) mod write;

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
