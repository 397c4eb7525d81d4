//! Verbs, each in its own folder. A verb gets settings and a printer, and does not use clap or the
//! environment.

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

/// A command for an artifact in a registry or for a file.
pub(crate) enum ArtifactOrFile<A, F> {
    /// `sign REFERENCE`
    Artifact(A),
    /// `sign FILE --bundle`
    File(F),
}
