//! One apply, from reading the object to the response of the API server. A [`PreparedApply`]
//! contains the final request. After this request passed the dry runs as the requesters, the
//! [`PreparedApply`] becomes a [`CheckedApply`]. Only a [`CheckedApply`] can be sent.
//! `install::executor` and `rights::dry_runs` decide which objects are applied.

pub(super) mod allowed_dry_runs;
mod checked;
mod client;
mod comparison;
mod dry_run;
mod ownership;
mod plan;
mod prepared;
mod rejection;
mod request;
pub(super) mod scalers;

pub(in crate::reconcile) use checked::{CHECK_VALIDITY, CheckedApply, DryRuns, RequiredConsent};
pub(in crate::reconcile) use client::ApplyClient;
pub(in crate::reconcile) use plan::{ApplyPlan, Targets, UnpreparedApplies};
pub(in crate::reconcile) use prepared::{ObservedTarget, PreparedApply, Preparer, Target};
pub(in crate::reconcile) use rejection::ApplyRejection;
pub(in crate::reconcile) use request::Applied;

use crate::reconcile::api::object;

/// The reason why an object was not applied.
#[derive(Debug)]
pub(in crate::reconcile) enum ApplyError {
    Api(kube::Error),
    /// The object was deleted or created after it was read. The next reconcile reads the object
    /// again.
    Moved,
    /// The object changed after the dry run, and the repeated check failed or has an unknown
    /// result.
    NotAllowed(ApplyRejection),
}

impl ApplyError {
    /// Returns true if a retry of the same request can succeed.
    pub(in crate::reconcile) fn is_passing(&self) -> bool {
        match self {
            Self::Api(error) => object::is_passing(error) || object::is_not_found(error),
            Self::Moved => true,
            Self::NotAllowed(refusal) => refusal.may_change(),
        }
    }

    /// Returns the error in one line.
    pub(in crate::reconcile) fn message(&self) -> String {
        match self {
            Self::Api(kube::Error::Api(status)) => bundle_cluster::error::rejection_message(status),
            Self::Api(error) => object::error_message(error),
            Self::Moved => "another actor deleted or created it at the same time".to_owned(),
            Self::NotAllowed(refusal) => refusal.message(),
        }
    }
}

#[cfg(test)]
mod tests;
