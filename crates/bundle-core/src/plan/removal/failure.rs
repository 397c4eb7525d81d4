//! Reasons for which a removal does not go on, in the words of the condition.

use crate::diagnostic::{Code, codes};
use crate::plan::retry::RetryPolicy;

/// The reason of conditions while a removal goes on.
pub const REMOVING: &str = "Removing";
/// The reason of conditions while somebody has to do something about a removal.
pub const REFUSED: &str = "RemovalRefused";

const NOT_REVIEWED: &str = "nobody was asked about this deletion: it was made while the webhook registrations were missing or altered, or within seconds after that; nothing is removed";

/// A removal that does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalFailure {
    /// Its entry in the catalogue.
    pub code: Code,
    /// The reason of the conditions: [`REMOVING`] or [`REFUSED`].
    pub reason: &'static str,
    /// The message of the conditions.
    pub message: String,
    /// The time of the next attempt.
    pub retry: RetryPolicy,
}

impl RemovalFailure {
    /// Somebody has to do something about it.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: REFUSED,
            message: message.into(),
            retry: RetryPolicy::Slowly,
        }
    }

    /// The inventory of the BundleDeployment with this uid is lost.
    pub fn inventory_lost(uid: &str, state_namespace: &str) -> Self {
        Self::refused(
            codes::install::INVENTORY_LOST,
            format!(
                "the inventory of what was installed (ConfigMap inventory-{uid} in namespace {state_namespace}) is gone, so it is not known which objects are to be removed: remove them by hand, and set spec.deletion.objects: Orphan to let this one go"
            ),
        )
    }

    /// There is no ServiceAccount to remove as.
    pub fn no_account() -> Self {
        Self::refused(
            codes::install::NO_ACCOUNT,
            "the ProvisionerClass is gone and it is not recorded who installed: create the class again, or set spec.deletion.objects: Orphan to leave the objects behind",
        )
    }

    /// Definitions are in use; `list` names them, each with its custom resources.
    pub fn definitions_in_use(list: &str) -> Self {
        Self {
            retry: RetryPolicy::Soon,
            ..Self::refused(
                codes::install::RESOURCES_LEFT,
                format!(
                    "nothing is torn down while custom resources exist that were not installed by it: {list} (delete them, or set spec.deletion.customResources: Orphan or Delete)"
                ),
            )
        }
    }

    /// Nobody was asked about the deletion, and it has no time at which it could be admitted.
    pub fn not_reviewed() -> Self {
        Self::refused(codes::install::DELETION_NOT_REVIEWED, NOT_REVIEWED)
    }

    /// Nobody was asked about the deletion, and `admit` is the command with which somebody admits it.
    pub(super) fn not_admitted(admit: &str) -> Self {
        let code = codes::install::DELETION_NOT_REVIEWED;
        Self::refused(
            code,
            format!(
                "{NOT_REVIEWED} ({code}). Read its spec; if what it has installed shall be removed, run {admit}: you become its requester, and only what you may delete is removed. To keep what is installed, set spec.deletion.objects: Orphan before that"
            ),
        )
    }

    /// Nobody was asked about the deletion, and a stamp that is made now could not admit it.
    pub(super) fn not_admitted_yet() -> Self {
        Self {
            code: codes::install::DELETION_NOT_REVIEWED,
            reason: REMOVING,
            message: format!(
                "{NOT_REVIEWED}, and in a few seconds it is said here how to admit it"
            ),
            retry: RetryPolicy::Soon,
        }
    }
}
