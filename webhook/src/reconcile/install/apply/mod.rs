//! One apply, from the look at the object to the answer of the API server. What is sent is worked out once ([`PreparedApply`]), checked by dry runs as the
//! requesters ([`CheckedApply`]), and then sent with the same bytes. Nothing but a [`CheckedApply`] can be applied.
//! Not here: which objects are applied, in which order, and what is reported (install::executor, rights::requester_check).

mod checked;
mod checker;
mod dry_run;
mod ownership;
mod plan;
mod prepared;
mod request;

pub(in crate::reconcile) use checked::{CheckedApply, DryRuns, NotAllowed, TakenConsent};
pub(in crate::reconcile) use checker::ApplyChecker;
pub(in crate::reconcile) use plan::{ApplyPlan, Targets};
pub(in crate::reconcile) use prepared::{PreparedApply, Preparer, Target};
pub(in crate::reconcile) use request::Applied;

use crate::reconcile::api::object;

/// Why one object was not applied.
#[derive(Debug)]
pub(in crate::reconcile) enum ApplyError {
    Api(kube::Error),
    /// Somebody deleted it, or created another one, since it was looked at. The next reconcile looks again.
    Moved,
    /// The object has changed since the dry run, and as it is now the requester may not write it or it is not known.
    NotAllowed(NotAllowed),
}

impl ApplyError {
    /// Whether the next attempt may succeed by itself.
    pub(in crate::reconcile) fn is_passing(&self) -> bool {
        match self {
            Self::Api(error) => object::is_passing(error) || object::is_not_found(error),
            Self::Moved => true,
            Self::NotAllowed(refusal) => refusal.may_change(),
        }
    }

    /// The error in one line.
    pub(in crate::reconcile) fn message(&self) -> String {
        match self {
            Self::Api(kube::Error::Api(status)) => bundle_cluster::error::words(status),
            Self::Api(error) => object::told(error),
            Self::Moved => "somebody deleted or created it at the same time".to_owned(),
            Self::NotAllowed(refusal) => refusal.message(),
        }
    }
}

#[cfg(test)]
mod tests;
