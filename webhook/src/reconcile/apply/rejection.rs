//! Reasons why an apply did not pass the dry runs.

use bundle_core::plan::ownership::ListPath;
use bundle_core::plan::replacement_trial::is_full_quota;
use bundle_core::rights::DryRunVerdict;

use super::ApplyError;

/// Maximum number of differing fields in a message.
const MAX_FIELDS: usize = 10;

/// The reason why an apply did not pass the dry runs as the requesters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) enum ApplyRejection {
    /// The API server rejected the dry run as a requester, or the result is unknown.
    Verdict(DryRunVerdict),
    /// The API server rejected the dry run as a requester, or the result is unknown. The reason can
    /// be that the object is not in the expected state.
    Conflict(DryRunVerdict),
    /// The API server rejected the dry run as a requester, because the lists contain conflicting
    /// items of several field managers.
    SharedLists(DryRunVerdict, Vec<ListPath>),
    /// Mutating admission sets these fields to different values for the requester and for the
    /// installer.
    MutatedDifferently(Vec<String>),
    /// The API server rejects the dry run as the installer with this message. Therefore the results
    /// for requester and installer could not be compared.
    Installer(String),
    /// The object was deleted or created after it was read.
    DeletedOrCreated,
}

impl ApplyRejection {
    /// Returns true if a retry may have another result.
    pub(in crate::reconcile) fn may_change(&self) -> bool {
        match self {
            Self::DeletedOrCreated => true,
            Self::Verdict(verdict) | Self::Conflict(verdict) | Self::SharedLists(verdict, _) => {
                matches!(
                    verdict,
                    DryRunVerdict::Unknown(_) | DryRunVerdict::Missing(_)
                )
            }
            Self::MutatedDifferently(_) | Self::Installer(_) => false,
        }
    }

    /// Returns true if a full resource quota is the only reason for the rejection.
    pub(in crate::reconcile) fn is_full_quota(&self) -> bool {
        matches!(self, Self::Verdict(_) | Self::Installer(_)) && is_full_quota(&self.message())
    }

    /// Returns the rejection of an apply whose lists have conflicting items. `verdict` is the
    /// result of the dry run of this apply. `error` is the reason why the ownership of these lists
    /// could not be changed.
    pub(super) fn ownership_error(verdict: &DryRunVerdict, error: ApplyError) -> Self {
        let words = format!(
            "{}; cannot take over the lists from their field managers: {}",
            verdict_message(verdict),
            error.message()
        );
        match error {
            ApplyError::Moved => Self::DeletedOrCreated,
            error if error.is_passing() => Self::Verdict(DryRunVerdict::Unknown(words)),
            ApplyError::NotAllowed(Self::Verdict(verdict)) => Self::Verdict(match verdict {
                DryRunVerdict::Refused { by_rbac, .. } => DryRunVerdict::Refused {
                    message: words,
                    by_rbac,
                },
                DryRunVerdict::Unsupported(_) => DryRunVerdict::Unsupported(words),
                DryRunVerdict::NotImpersonated(_) => DryRunVerdict::NotImpersonated(words),
                _ => DryRunVerdict::Invalid(words),
            }),
            ApplyError::NotAllowed(refusal @ Self::MutatedDifferently(_)) => refusal,
            ApplyError::NotAllowed(_) | ApplyError::Api(_) => Self::Installer(words),
        }
    }

    /// Returns the reason in one line. The text contains field names, but no field values.
    pub(in crate::reconcile) fn message(&self) -> String {
        match self {
            Self::Verdict(verdict) | Self::Conflict(verdict) | Self::SharedLists(verdict, _) => {
                verdict_message(verdict).to_owned()
            }
            Self::MutatedDifferently(fields) => {
                let named = bundle_core::plan::conditions::some_of(fields, MAX_FIELDS);
                format!(
                    "mutating admission sets these fields differently for the requester and for the installer: {named}"
                )
            }
            Self::Installer(words) => words.clone(),
            Self::DeletedOrCreated => {
                "another actor deleted or created it at the same time".to_owned()
            }
        }
    }
}

/// Returns the message of the API server. The text is empty for an allowed request.
fn verdict_message(verdict: &DryRunVerdict) -> &str {
    match verdict {
        DryRunVerdict::Allowed => "",
        DryRunVerdict::Refused { message, .. } => message,
        DryRunVerdict::Missing(words)
        | DryRunVerdict::Invalid(words)
        | DryRunVerdict::Unsupported(words)
        | DryRunVerdict::NotImpersonated(words)
        | DryRunVerdict::Unknown(words) => words,
    }
}
