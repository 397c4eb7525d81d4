//! The error of a reconcile and its retry policy.

use std::time::Duration;

use bundle_core::diagnostic::{Code, Finding, Findings, Outcome, codes};
use bundle_core::plan::inventory::InventoryError;
use bundle_core::plan::removal::RemovalFailure;
pub(in crate::reconcile) use bundle_core::plan::retry::RetryPolicy;
use bundle_core::text::{MAX_MESSAGES, MessageList};
use rand::Rng as _;

use crate::reconcile::api::object;
use crate::reconcile::inventory::error::InventoryStoreError;

/// Maximum number of objects and warnings in a status or a message.
pub(in crate::reconcile) const MAX_LISTED: usize = MAX_MESSAGES;

/// The reason why a reconcile failed, and its retry policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct ReconcileError {
    /// The code in the catalogue of diagnostics.
    pub(in crate::reconcile) code: Code,
    /// The reason of the condition that reports the error.
    pub(in crate::reconcile) reason: &'static str,
    /// The message of the condition and of the Event.
    pub(in crate::reconcile) message: String,
    pub(in crate::reconcile) retry: RetryPolicy,
    /// Object keys of the objects that the API server cannot store. When one of these objects
    /// changes on the cluster, the reconcile is repeated.
    pub(in crate::reconcile) objects: Vec<String>,
}

impl ReconcileError {
    pub(in crate::reconcile) fn new(
        code: Code,
        reason: &'static str,
        message: impl Into<String>,
        retry: RetryPolicy,
    ) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            retry,
            objects: Vec::new(),
        }
    }

    /// Returns the error of a failed request to the API server. `doing` completes the message
    /// "cannot …".
    pub(in crate::reconcile) fn api(
        doing: &str,
        reason: &'static str,
        error: &kube::Error,
    ) -> Self {
        Self::new(
            codes::cluster::UNREACHABLE,
            reason,
            format!("cannot {doing}: {}", object::error_message(error)),
            RetryPolicy::Soon,
        )
    }

    /// Returns the error for an inventory that could not be read or written.
    pub(in crate::reconcile) fn inventory(
        reason: &'static str,
        error: &InventoryStoreError,
    ) -> Self {
        let (code, retry, next_step) = match error {
            InventoryStoreError::Claimed { .. } | InventoryStoreError::Owned { .. } => (
                codes::install::OWNED_BY_OTHER,
                RetryPolicy::Soon,
                "; remove it from the content of one of the BundleDeployments",
            ),
            InventoryStoreError::Inventory(
                InventoryError::TooMany { .. } | InventoryError::TooLarge { .. },
            ) => (
                codes::install::INVENTORY_TOO_LARGE,
                RetryPolicy::OnChange,
                "; split the content into several bundles",
            ),
            // The message of this error already contains the next step.
            InventoryStoreError::TooManyObjects(_) => {
                (codes::install::TOO_MANY_OBJECTS, RetryPolicy::Slowly, "")
            }
            _ => (
                codes::install::INVENTORY_FAILED,
                RetryPolicy::Soon,
                "; the reconcile is retried",
            ),
        };
        Self::new(code, reason, format!("{error}{next_step}"), retry)
    }

    /// Converts findings to an error. The code is the code of the first error among the findings.
    pub(in crate::reconcile) fn findings(
        reason: &'static str,
        findings: &Findings,
        retry: RetryPolicy,
    ) -> Self {
        let code = findings
            .errors()
            .next()
            .map_or(codes::install::APPLY_FAILED, |finding| finding.code);
        let messages: Vec<_> = findings.errors().map(finding_text).collect();
        Self::new(code, reason, messages.join("; "), retry)
    }

    /// Returns true if the result is unknown because a dependency did not respond.
    pub(in crate::reconcile) fn is_unknown(&self) -> bool {
        self.code.outcome == Outcome::Unknown
    }
}

/// Returns the text of a finding and its hint in one line.
pub(in crate::reconcile) fn finding_text(finding: &Finding) -> String {
    match &finding.hint {
        Some(hint) => format!("{finding} ({hint})"),
        None => finding.to_string(),
    }
}

/// Joins messages in sorted order without duplicates. The text contains the first `most` messages,
/// and the number of the other messages.
pub(in crate::reconcile) fn joined(messages: Vec<String>, most: usize) -> String {
    messages.into_iter().collect::<MessageList>().joined(most)
}

impl From<RemovalFailure> for ReconcileError {
    fn from(failure: RemovalFailure) -> Self {
        let RemovalFailure {
            code,
            reason,
            message,
            retry,
        } = failure;
        Self::new(code, reason, message, retry)
    }
}

/// Returns the delay before the next attempt after `failures` consecutive failures. Returns `None`
/// if only a change of an object starts the next attempt.
pub(in crate::reconcile) fn retry_delay(retry: RetryPolicy, failures: u32) -> Option<Duration> {
    retry.after(failures, rand::rng().random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inventory_that_is_too_large_is_not_written_again_without_a_change() {
        let error = |inventory| {
            let error = InventoryStoreError::Inventory(inventory);
            let error = ReconcileError::inventory("InstallFailed", &error);
            (error.code.id, error.retry)
        };
        let too_large = ("BUNDLE-INSTALL-037", RetryPolicy::OnChange);
        let (bytes, most) = (1_000_001, 1_000_000);
        assert_eq!(error(InventoryError::TooLarge { bytes, most }), too_large);
        let (count, what, most) = (25_001, "objects", 25_000);
        assert_eq!(
            error(InventoryError::TooMany { count, what, most }),
            too_large
        );
        let unknown = InventoryError::UnknownVersion(2);
        assert_eq!(error(unknown), ("BUNDLE-INSTALL-036", RetryPolicy::Soon));
    }
}
