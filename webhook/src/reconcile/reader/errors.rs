//! Errors of a reconcile that loads content.

use std::io;

use bundle_core::diagnostic::{Finding, Outcome, codes};
use bundle_oci::registry::RegistryError;

use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::sources::{SourceError, UploadSourceError};

/// Converts the failure of a source to the error of a reconcile.
pub(in crate::reconcile) fn source_error(
    error: SourceError,
    reason: &'static str,
) -> ReconcileError {
    match error {
        SourceError::PullSecret(error) => ReconcileError::new(
            codes::install::CONTENT_LOST,
            reason,
            crate::chain(&error),
            RetryPolicy::Soon,
        ),
        SourceError::Registry(error) => from_registry_error(error, reason),
        SourceError::Git(error) => {
            let finding = error.finding();
            let retry = if finding.code.outcome == Outcome::Unknown {
                RetryPolicy::Soon
            } else if finding.code == codes::install::GIT_MISSING {
                // A retry has no effect, because the program git is part of the image of the pod.
                RetryPolicy::OnChange
            } else {
                RetryPolicy::Slowly
            };
            ReconcileError::findings(reason, &finding.into(), retry)
        }
        SourceError::Http(error) => {
            let finding = error.finding();
            let retry = if error.is_terminal() {
                RetryPolicy::OnChange
            } else if finding.code.outcome == Outcome::Unknown {
                RetryPolicy::Soon
            } else {
                RetryPolicy::Slowly
            };
            ReconcileError::findings(reason, &finding.into(), retry)
        }
        SourceError::Upload(error) => {
            let finding = error.finding();
            let retry = match error {
                UploadSourceError::Storage(_) | UploadSourceError::Lost(_) => RetryPolicy::Slowly,
                // The next upload starts the next attempt.
                UploadSourceError::NotUploaded | UploadSourceError::Content(_) => {
                    RetryPolicy::OnChange
                }
            };
            ReconcileError::findings(reason, &finding.into(), retry)
        }
        SourceError::ConfigMaps(error) => {
            let finding = error.finding();
            // ConfigMaps are not watched, so even a permanent error is retried.
            let retry = if finding.code.outcome == Outcome::Unknown {
                RetryPolicy::Soon
            } else {
                RetryPolicy::Slowly
            };
            ReconcileError::findings(reason, &finding.into(), retry)
        }
    }
}

fn from_registry_error(error: RegistryError, reason: &'static str) -> ReconcileError {
    let finding = Finding::from(error);
    // The only files that this code writes are in the cache.
    if finding.code == codes::usage::FILE_UNWRITABLE {
        return ReconcileError::new(
            codes::install::CACHE_FULL,
            reason,
            finding.message,
            RetryPolicy::Slowly,
        );
    }
    let retry = if finding.code.outcome == Outcome::Unknown {
        RetryPolicy::Soon
    } else {
        RetryPolicy::Slowly
    };
    ReconcileError::findings(reason, &finding.into(), retry)
}

/// Returns the error for content that cannot be written to the cache.
pub(in crate::reconcile) fn unstorable(error: &io::Error, reason: &'static str) -> ReconcileError {
    let message = format!(
        "the content cannot be stored in the cache: {error}; use a larger volume for the cache, or a smaller --cache-limit"
    );
    ReconcileError::new(
        codes::install::CACHE_FULL,
        reason,
        message,
        RetryPolicy::Slowly,
    )
}

/// Returns the error for a worker thread that panicked.
pub(super) fn panicked(reason: &'static str) -> ReconcileError {
    let message = "cannot read the content: its worker thread panicked";
    ReconcileError::new(
        codes::install::CONTENT_LOST,
        reason,
        message,
        RetryPolicy::Slowly,
    )
}

/// Returns the error for content that needs `weight` bytes of memory after parsing.
pub(in crate::reconcile) fn content_too_large(
    weight: u64,
    limit: u64,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::CONTENT_TOO_LARGE,
        reason,
        format!(
            "the parsed content needs {} MiB of memory, and at most {} MiB are available for one content: split the content into several bundles, or increase the memory of bundle-webhook",
            weight.div_ceil(1 << 20),
            limit >> 20
        ),
        RetryPolicy::OnChange,
    )
}

/// Returns the error for content that is read after other content releases its memory.
pub(in crate::reconcile) fn no_memory(reason: &'static str) -> ReconcileError {
    let message = "the content waits for memory that other content uses; the reconcile is retried";
    ReconcileError::new(
        codes::install::MEMORY_BUSY,
        reason,
        message,
        RetryPolicy::Soon,
    )
}

/// Returns the error for content that is being fetched again.
pub(in crate::reconcile) fn fetched_again(reason: &'static str) -> ReconcileError {
    ReconcileError::new(
        codes::install::UNPACKING,
        reason,
        "the content is not in the cache and is being fetched again; the reconcile continues after that",
        RetryPolicy::Soon,
    )
}
