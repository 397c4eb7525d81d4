//! Dry runs as the requesters, and the applies that passed these dry runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_core::object::ObjectId;
use bundle_core::plan::consent::{Consent, ConsentRule, ObjectAction};
use bundle_core::review::Requester;
use bundle_core::review::class::RequesterCheck;
use bundle_core::rights::{DryRunVerdict, MutatedKinds, records_requester};
use kube::Client;

use super::{Applied, ApplyRejection, PreparedApply, Target, request};
use crate::budget::Share;
use crate::clients::cluster::ServiceAccount;
use crate::dry_run::{Detail, RequesterDryRun};
use crate::reconcile::api::object;
use crate::reconcile::apply::allowed_dry_runs::{AllowedDryRuns, DryRunKey};
use crate::reconcile::apply::comparison::{self, DryRunWrite};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::slots::ApplySlots;

/// Time for which a permission check is valid before a write. After this time the check is
/// repeated.
pub(in crate::reconcile) const CHECK_VALIDITY: Duration = Duration::from_secs(10);

/// An apply that passed the dry runs of every requester, or that needs no dry run because of the
/// settings of the class. The apply request contains exactly the checked bytes.
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

    /// Returns the apply without its check. The next check does not use cached results.
    pub(super) fn into_stale(self) -> PreparedApply<'i> {
        self.prepared.bypassing_cache()
    }

    /// Returns the object key, and the expected state of the object.
    pub(in crate::reconcile) fn key_and_target(&self) -> (&str, &Target) {
        (&self.prepared.item().key, self.prepared.target())
    }

    /// Sends the apply as the user of `client`.
    pub(super) async fn send(&self, client: &Client) -> Result<Applied, kube::Error> {
        request::send(client, &self.prepared, false).await
    }
}

/// The rule and the action that determine which permission check each object of the content
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
    /// The kinds with mutating admission. For these kinds, the dry-run results for requester and
    /// installer are compared.
    pub(in crate::reconcile) mutated: Arc<MutatedKinds>,
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

    /// Sends the dry runs. If a dry run fails, returns the apply and the reason.
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
        let prepared = self.for_current_version(prepared).await?;
        let compares = self.compares(item);
        let mut full = None;
        for (requester, run) in &self.runs {
            // The key is a hash of the object, which can have several MiB. If the results of all
            // objects are in the cache, no request separates the computations of their keys.
            tokio::task::yield_now().await;
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
                // Any other rejection has priority over a full quota, because a caller that
                // replaces the object ignores a full quota.
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

    /// Returns the apply with the current resourceVersion of an existing object, so that the apply
    /// changes only the version that the dry runs are sent for. Reads the object only if its version
    /// is not known. If the known version is outdated, the API server rejects the dry run with a
    /// conflict, and the apply is prepared again.
    async fn for_current_version<'i>(
        &self,
        prepared: PreparedApply<'i>,
    ) -> Result<PreparedApply<'i>, (PreparedApply<'i>, ApplyRejection)> {
        let Target::Uid(uid) = prepared.target() else {
            return Ok(prepared);
        };
        if !prepared.needs_checked_version() {
            return Ok(prepared);
        }
        if let Some(version) = prepared.observed_version() {
            return Ok(prepared.with_checked_version(version));
        }
        let item = prepared.item();
        match object::observe(&self.installer, &item.kind, &item.id).await {
            Ok(Some(live)) if live.uid == *uid => Ok(prepared.with_checked_version(live.version)),
            Ok(_) => Err((prepared, ApplyRejection::DeletedOrCreated)),
            Err(error) => {
                let verdict = DryRunVerdict::Unknown(object::error_message(&error));
                Err((prepared, ApplyRejection::Verdict(verdict)))
            }
        }
    }

    /// Waits for a slot to read the complete managed fields of an object. The slot counts towards
    /// the limit of the first requester. If there is no requester, it counts towards the limit of
    /// the installer. Never returns `None`.
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

    /// Returns true if the dry-run results for requester and installer are compared before the
    /// object is written.
    fn compares(&self, item: &PreparedObject) -> bool {
        let resource = &item.kind.resource.plural;
        self.mutated.contains(&item.id.group, resource) && !records_requester(&item.id)
    }

    /// Sends a dry run of the write as the requester. If mutating admission may change the object,
    /// compares the result with the result of a dry run as the installer.
    async fn check_write(
        &self,
        requester: &Requester,
        run: &RequesterDryRun,
        write: DryRunWrite<'_>,
    ) -> Result<(), ApplyRejection> {
        if self.compares(write.item()) {
            return comparison::compare(&self.slots, &self.installer, requester, run, write).await;
        }
        let answer = write.send_as_requester(run, Detail::Metadata).await;
        answer.map(drop)
    }
}
