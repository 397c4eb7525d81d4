//! Verbs, each in its own folder. `arguments.rs` of the folder contains clap's arguments, and
//! converts them to settings. The rest of the folder gets settings and a printer, and does not use
//! clap or the environment.

pub(crate) mod deployments;
#[cfg(test)]
mod messages;
pub(crate) mod package;
pub(crate) mod program;
mod runtime;
pub(crate) mod signing;
pub(crate) mod transfer;
pub(crate) mod webhook;

pub(crate) use runtime::{in_runtime, interruptible};

/// Settings of a verb that handles either an artifact in a registry or a file.
pub(crate) enum ArtifactOrFile<A, F> {
    /// Artifact in a registry, as in `sign REFERENCE`.
    Artifact(A),
    /// File, as in `sign FILE --bundle`.
    File(F),
}
