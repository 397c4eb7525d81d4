//! One apply, from the look at the object to the answer of the API server. What is sent is worked out once ([`PreparedApply`]), checked by dry runs as the
//! requesters ([`CheckedApply`]), and then sent with the same bytes. Nothing but a [`CheckedApply`] can be applied.
//! Not here: which objects are applied, in which order, and what is reported (install, requester_check).

mod checked;
mod checker;
mod ownership;
mod plan;
mod prepared;
mod request;

pub(super) use checked::{CheckedApply, DryRuns, NotAllowed, TakenConsent};
pub(super) use checker::ApplyChecker;
pub(super) use plan::{ApplyPlan, Targets};
pub(super) use prepared::{PreparedApply, Preparer, Target};
pub(super) use request::Applied;

use super::object;

/// Why one object was not applied.
#[derive(Debug)]
pub(super) enum ApplyError {
    Api(kube::Error),
    /// Somebody deleted it, or created another one, since it was looked at. The next reconcile looks again.
    Moved,
    /// The object has changed since the dry run, and as it is now the requester may not write it or it is not known.
    NotAllowed(NotAllowed),
}

impl ApplyError {
    /// Whether the next attempt may succeed by itself.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Api(error) => object::is_passing(error) || object::is_not_found(error),
            Self::Moved => true,
            Self::NotAllowed(refusal) => refusal.may_change(),
        }
    }

    /// The error in one line.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Api(kube::Error::Api(status)) => super::replace::words(status),
            Self::Api(error) => object::told(error),
            Self::Moved => "somebody deleted or created it at the same time".to_owned(),
            Self::NotAllowed(refusal) => refusal.message(),
        }
    }
}

#[cfg(test)]
mod tests;
