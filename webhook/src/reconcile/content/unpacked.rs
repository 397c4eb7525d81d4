//! The result of unpacking a Bundle.

use bundle_api::bundle::{BundleContent, SignedBy};
use bundle_core::content::ContentId;
use bundle_core::plan::bundle::{Compatibility, UnpackedContent};
use bundle_core::plan::conditions::ConditionStatus;

use crate::reconcile::error::ReconcileError;

/// Unpacked content, with the results of its checks.
pub(in crate::reconcile) struct Unpacked {
    pub(in crate::reconcile) id: ContentId,
    /// Reason and message of the condition `Verified`.
    pub(in crate::reconcile) verified: (&'static str, String),
    pub(in crate::reconcile) signed_by: Vec<SignedBy>,
    /// The state, reason and message of the condition `Compatible`.
    pub(in crate::reconcile) compatible: Compatibility,
    /// The field `status.content`. Its spec digest and its seal are not set yet.
    pub(in crate::reconcile) content: BundleContent,
    pub(in crate::reconcile) warnings: Vec<String>,
}

/// The reason why a Bundle could not be unpacked.
pub(in crate::reconcile) struct UnpackError {
    pub(in crate::reconcile) error: ReconcileError,
    /// Status and message of the condition `Verified`, if verification failed.
    pub(in crate::reconcile) verified: Option<(ConditionStatus, String)>,
}

impl Unpacked {
    /// Returns the facts for the conditions of the Bundle.
    pub(in crate::reconcile) fn content(&self) -> UnpackedContent<'_> {
        let (found, signers) = &self.verified;
        let compatible = &self.compatible;
        UnpackedContent {
            digest: self.id.digest(),
            verified: (found, signers),
            compatible: (compatible.state, compatible.reason, &compatible.message),
            warnings: &self.warnings,
        }
    }
}

impl From<ReconcileError> for UnpackError {
    fn from(error: ReconcileError) -> Self {
        Self {
            error,
            verified: None,
        }
    }
}
