//! Failures of a removal, with reason and message of the conditions.

use crate::diagnostic::{Code, codes};
use crate::plan::retry::RetryPolicy;

/// Reason of conditions while a removal is in progress.
pub const REMOVING: &str = "Removing";
/// Reason of conditions while a removal waits for an action of a user.
pub const REFUSED: &str = "RemovalRefused";

const NOT_REVIEWED: &str = "the webhook did not review the deletion: its registrations were missing or altered at the time of the deletion, or a few seconds before; the installed objects stay";

/// Failure of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalFailure {
    /// Diagnostic code.
    pub code: Code,
    /// Reason of the conditions: [`REMOVING`] or [`REFUSED`].
    pub reason: &'static str,
    /// Message of the conditions.
    pub message: String,
    /// Policy for the time of the next attempt.
    pub retry: RetryPolicy,
}

impl RemovalFailure {
    /// Returns a failure that a user must resolve.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: REFUSED,
            message: message.into(),
            retry: RetryPolicy::Slowly,
        }
    }

    /// Returns the failure if the inventory of the BundleDeployment with this uid is lost.
    pub fn inventory_lost(uid: &str, state_namespace: &str) -> Self {
        Self::refused(
            codes::install::INVENTORY_LOST,
            format!(
                "the inventory of installed objects (ConfigMap inventory-{uid} in namespace {state_namespace}) does not exist, so the objects to remove are unknown: remove them by hand, then set spec.deletion.objects: Orphan to complete the deletion"
            ),
        )
    }

    /// Returns the failure for a removal without a ServiceAccount.
    pub fn no_account() -> Self {
        Self::refused(
            codes::install::NO_ACCOUNT,
            "the ProvisionerClass does not exist, and no installing ServiceAccount is recorded: create the class again, or set spec.deletion.objects: Orphan to keep the objects",
        )
    }

    /// Returns the failure for definitions in use. `list` names the definitions, each with its
    /// custom resources.
    pub fn definitions_in_use(list: &str) -> Self {
        Self {
            retry: RetryPolicy::Soon,
            ..Self::refused(
                codes::install::RESOURCES_LEFT,
                format!(
                    "the installed objects stay while custom resources exist that this BundleDeployment did not install: {list} (delete them, or set spec.deletion.customResources: Orphan or Delete)"
                ),
            )
        }
    }

    /// Returns the failure for a deletion that was not reviewed and cannot be admitted.
    pub fn not_reviewed() -> Self {
        Self::refused(codes::install::DELETION_NOT_REVIEWED, NOT_REVIEWED)
    }

    /// Returns the failure for a deletion that was not reviewed. `admit` is the command that admits
    /// the deletion.
    pub(super) fn not_admitted(admit: &str) -> Self {
        let code = codes::install::DELETION_NOT_REVIEWED;
        Self::refused(
            code,
            format!(
                "{NOT_REVIEWED} ({code}). To remove the installed objects, read the spec and run {admit}: you become the requester, and only objects that you have permission to delete are removed. To keep them, set spec.deletion.objects: Orphan first"
            ),
        )
    }

    /// Returns the failure for a deletion that was not reviewed and cannot be admitted yet.
    pub(super) fn not_admitted_yet() -> Self {
        Self {
            code: codes::install::DELETION_NOT_REVIEWED,
            reason: REMOVING,
            message: format!(
                "{NOT_REVIEWED}; in a few seconds this message shows the command that admits the deletion"
            ),
            retry: RetryPolicy::Soon,
        }
    }
}
