//! Converts failed lookups to findings.

use bundle_core::diagnostic::{Code, Finding};

use crate::failure::Failure;

/// Returns a finding for a failed lookup.
pub(super) fn unavailable(code: Code, subject: &str, failure: &Failure) -> Finding {
    let why = match failure {
        Failure::Server(status) => crate::failure::api_server::message(status),
        Failure::Findings { findings, .. } => findings.to_string(),
        Failure::Reported(_) | Failure::BrokenPipe => String::new(),
    };
    Finding::error(code, format!("{subject}: {why}")).hint(
        "the webhook looks this up with its own permissions; with yours, the result is unknown",
    )
}
