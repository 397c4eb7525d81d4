//! Dry runs as the requesters, and the applies that passed them.

use std::time::{Duration, Instant};

use bundle_core::object::ObjectId;
use bundle_core::plan::consent::{Consent, ConsentRule, ObjectAction};
use bundle_core::plan::ownership::ListPath;
use bundle_core::plan::replacement_trial::is_full_quota;
use bundle_core::review::Requester;
use bundle_core::review::class::RequesterCheck;
use bundle_core::rights::{DryRunVerdict, MutatedKinds};
use kube::Client;

use super::{Applied, ApplyError, PreparedApply, Target, request};
use crate::budget::Share;
use crate::clients::cluster::ServiceAccount;
use crate::dry_run::RequesterDryRun;
use crate::reconcile::apply::allowed_dry_runs::{AllowedDryRuns, DryRunKey};
use crate::reconcile::apply::comparison::DryRunWrite;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::slots::ApplySlots;

/// Time for which a permission check is valid before a write. After this time the check is
/// repeated.
pub(in crate::reconcile) const CHECK_VALIDITY: Duration = Duration::from_secs(10);
/// Maximum number of differing fields in a message.
const MAX_FIELDS: usize = 10;

/// An apply that passed the dry runs of every requester, or that needs no dry run because of the
/// settings of the class. Exactly the checked bytes are sent.
#[derive(Debug)]
pub(in crate::reconcile) struct CheckedApply<'i> {
    prepared: PreparedApply<'i>,
    since: Instant,
}

impl<'i> CheckedApply<'i> {
    fn new(prepared: PreparedApply<'i>) -> Self {
        Self {
            prepared,
            since: Instant::now(),
        }
    }

    pub(in crate::reconcile) fn prepared(&self) -> &PreparedApply<'i> {
        &self.prepared
    }

    /// Returns true while the check is valid.
    pub(super) fn is_recent(&self) -> bool {
        self.since.elapsed() < CHECK_VALIDITY
    }

    /// Returns the apply as if its check had expired.
    #[cfg(test)]
    pub(super) fn aged(mut self) -> Self {
        self.since -= CHECK_VALIDITY;
        self
    }

    /// Discards the check. Returns the unchecked apply. The next check does not use cached results.
    pub(super) fn into_stale(self) -> PreparedApply<'i> {
        self.prepared.bypassing_cache()
    }

    /// Returns the key of the object, and its expected state.
    pub(in crate::reconcile) fn key_and_target(&self) -> (&str, &Target) {
        (&self.prepared.item().key, self.prepared.target())
    }

    /// Sends the apply as the user of `client`.
    pub(super) async fn send(&self, client: &Client) -> Result<Applied, kube::Error> {
        request::send(client, &self.prepared, false).await
    }
}

/// The reason why an apply did not pass the dry runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) enum ApplyRejection {
    /// The rejection or unknown result of the API server for a requester.
    Verdict(DryRunVerdict),
    /// Like [`Self::Verdict`], but the reason may be that the object is not in the expected state.
    Conflict(DryRunVerdict),
    /// Like [`Self::Verdict`], but the reason is that several field managers own items of these
    /// lists, and the items are invalid together.
    SharedLists(DryRunVerdict, Vec<ListPath>),
    /// Mutating admission sets these fields differently for the requester and for the installer.
    MutatedDifferently(Vec<String>),
    /// The API server rejects the object for the installer with this message, so that the results
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
    /// result of its dry run. Because of `error`, the ownership of these lists could not be
    /// changed.
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

    /// Returns the reason in one line, with names of fields and without values.
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

/// The rule and the action that determine which permission check each object of one content
/// requires.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct RequiredConsent {
    pub(in crate::reconcile) rule: ConsentRule,
    pub(in crate::reconcile) action: ObjectAction,
}

impl RequiredConsent {
    fn of(&self, id: &ObjectId) -> Consent {
        self.rule.consent(self.action, id)
    }

    /// Returns true if the object requires dry runs as the requesters.
    pub(in crate::reconcile) fn is_by_dry_run(&self, id: &ObjectId) -> bool {
        self.of(id) == Consent::Requesters(RequesterCheck::DryRun)
    }
}

/// The dry runs as the requesters that an apply must pass.
pub(in crate::reconcile) struct DryRuns<'a> {
    /// One client for each requester. The list is empty if no object requires dry runs.
    pub(in crate::reconcile) runs: Vec<(Requester, RequesterDryRun)>,
    pub(in crate::reconcile) class: String,
    pub(in crate::reconcile) memory: &'a AllowedDryRuns,
    pub(in crate::reconcile) slots: ApplySlots,
    /// True if cached results of dry runs are used.
    pub(in crate::reconcile) uses_cache: bool,
    /// The kinds with mutating admission, for which the results for requester and installer are
    /// compared.
    pub(in crate::reconcile) mutated: MutatedKinds,
    /// Client of the installing ServiceAccount.
    pub(in crate::reconcile) installer: Client,
    /// The installing ServiceAccount.
    pub(in crate::reconcile) account: ServiceAccount,
    /// The rule that decides which objects require dry runs as the requesters.
    pub(in crate::reconcile) consent: RequiredConsent,
}

impl DryRuns<'_> {
    /// Returns true if a write of the object requires dry runs as the requesters. Fails if the
    /// class denies the write, or if dry runs are required and no requester is known.
    fn requires_dry_run(&self, id: &ObjectId) -> Result<bool, ApplyRejection> {
        let verdict = match self.consent.of(id) {
            Consent::Delegated | Consent::Requesters(RequesterCheck::AccessReview) => {
                return Ok(false);
            }
            Consent::Requesters(RequesterCheck::DryRun) if self.runs.is_empty() => {
                DryRunVerdict::Unknown("the requester of the content is unknown".to_owned())
            }
            Consent::Requesters(RequesterCheck::DryRun) => return Ok(true),
            Consent::Denied(refusal) => DryRunVerdict::Refused {
                message: refusal.to_string(),
                by_rbac: false,
            },
        };
        Err(ApplyRejection::Verdict(verdict))
    }

    /// Sends the dry runs. If the apply does not pass, returns the apply and the reason.
    pub(super) async fn check<'i>(
        &self,
        prepared: PreparedApply<'i>,
    ) -> Result<CheckedApply<'i>, (PreparedApply<'i>, ApplyRejection)> {
        let item = prepared.item();
        match self.requires_dry_run(&item.id) {
            Ok(true) => {}
            Ok(false) => return Ok(CheckedApply::new(prepared)),
            Err(refusal) => return Err((prepared, refusal)),
        }
        let compares = self.compares(item);
        let mut full = None;
        for (requester, run) in &self.runs {
            let key = DryRunKey::of(
                requester,
                &self.class,
                &item.id,
                prepared.values(),
                (prepared.target(), prepared.version()),
                compares.then_some(&self.account),
            );
            let remembers = self.uses_cache && !prepared.bypasses_cache();
            if remembers && !prepared.has_moved_fields() && self.memory.contains(key).await {
                continue;
            }
            let write = DryRunWrite::Apply(&prepared);
            match self.check_write(requester, run, write).await {
                // Any other rejection has priority, because a caller that replaces the object
                // ignores a full quota.
                Err(refusal) if refusal.is_full_quota() => full = Some(refusal),
                Err(refusal) => return Err((prepared, refusal)),
                Ok(()) if prepared.has_moved_fields() => {}
                Ok(()) => self.memory.insert(key).await,
            }
        }
        match full {
            Some(refusal) => Err((prepared, refusal)),
            None => Ok(CheckedApply::new(prepared)),
        }
    }

    /// Waits for a slot for reading the complete managed fields of an object. The slot counts
    /// towards the limit of the first requester. If there is no requester, it counts towards the
    /// limit of the installer.
    pub(super) async fn entries_slot(&self) -> Option<Share> {
        let requester = self.runs.first().map(|(requester, _)| &requester.user);
        let installer = self.account.user_name();
        let user = requester.unwrap_or(&installer);
        self.slots.acquire_entries(user).await
    }

    /// Sends the dry runs of a JSON patch of an existing object, if the object requires dry runs.
    pub(super) async fn check_patch(
        &self,
        item: &PreparedObject,
        patch: &json_patch::Patch,
    ) -> Result<(), ApplyRejection> {
        if !self.requires_dry_run(&item.id)? {
            return Ok(());
        }
        let write = DryRunWrite::Patch(item, patch);
        for (requester, run) in &self.runs {
            self.check_write(requester, run, write).await?;
        }
        Ok(())
    }
}
