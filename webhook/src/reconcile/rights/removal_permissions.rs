//! Permission checks for objects that an upgrade or a removal deletes, and for the ServiceAccount
//! that deletes them. `bundle_core::plan::consent` decides which users need permission for a
//! deletion. `bundle_core::plan::removal` decides which objects are kept and how they are reported.

use std::collections::BTreeSet;

use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::consent::{ActingAccount, Consent, ConsentRule, ObjectAction};
use bundle_core::plan::removal::{self, NoDeletionReason};
use bundle_core::review::Requester;
use bundle_core::review::class::RequesterCheck;
use bundle_core::rights::AccessReview;
use bundle_core::service_account::ServiceAccount;

use crate::reconcile::context::Context;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::rights::authorize;
use crate::reconcile::rights::dry_runs::check;

/// Checks that all `requesters` can still impersonate `account`, the value of
/// `spec.serviceAccount`.
pub(in crate::reconcile) async fn named_account(
    ctx: &Context,
    account: &ServiceAccount,
    requesters: &[Requester],
) -> Result<ActingAccount, ReconcileError> {
    let question = AccessReview::impersonation(&account.namespace, &account.name);
    for requester in requesters {
        let is_allowed = match authorize::has_permission(&ctx.own, requester, &question).await {
            Err(error) if error.code == codes::install::RIGHTS_WITHDRAWN => {
                return Ok(ActingAccount::Withdrawn(error.message));
            }
            result => result?,
        };
        if !is_allowed {
            let ServiceAccount { namespace, name } = account;
            return Ok(ActingAccount::Withdrawn(format!(
                "{} has no permission to impersonate ServiceAccount {namespace}/{name}",
                requester.user
            )));
        }
    }
    Ok(ActingAccount::Granted)
}

/// The input for the permission checks of deletions.
pub(in crate::reconcile) struct Deletions<'a> {
    pub(in crate::reconcile) ctx: &'a Context,
    pub(in crate::reconcile) rule: &'a ConsentRule,
    pub(in crate::reconcile) act: ObjectAction,
    /// The requesters of all parts of the content.
    pub(in crate::reconcile) requesters: &'a [Requester],
    /// The reason of the condition that reports a failed check.
    pub(in crate::reconcile) reason: &'static str,
}

impl Deletions<'_> {
    /// Returns those of `objects` that must not be deleted, and the reason for each. If several
    /// requesters have no permission to delete an object, the object is returned once for each of
    /// these requesters.
    pub(in crate::reconcile) async fn undeletable(
        &self,
        objects: &[SharedPresentObject],
    ) -> Result<Vec<KeptObject>, ReconcileError> {
        let settings = &self.ctx.shared.settings;
        let reserved = removal::reserved(
            objects.iter().map(|present| &present.id),
            self.rule.class_namespaces(),
            &settings.namespace,
            &settings.state_namespace,
        );
        let mut kept: Vec<KeptObject> = Vec::new();
        let mut reviewed: Vec<SharedPresentObject> = Vec::new();
        let mut tried: Vec<&SharedPresentObject> = Vec::new();
        for present in objects {
            if reserved.contains(&&present.id) {
                kept.push(KeptObject {
                    id: present.id.clone(),
                    why: NoDeletionReason::Reserved,
                });
                continue;
            }
            match self.rule.consent(self.act, &present.id) {
                Consent::Delegated => {}
                Consent::Requesters(check) => {
                    reviewed.push(present.clone());
                    if check == RequesterCheck::DryRun {
                        tried.push(present);
                    }
                }
                Consent::Denied(refusal) => kept.push(KeptObject {
                    id: present.id.clone(),
                    why: refusal.to_string().into(),
                }),
            }
        }
        let ctx = self.ctx;
        for requester in self.requesters {
            let refused = authorize::undeletable(&ctx.own, requester, &reviewed).await?;
            kept.extend(refused);
        }
        let refused: BTreeSet<&ObjectId> = kept.iter().map(|kept| &kept.id).collect();
        tried.retain(|present| !refused.contains(&present.id));
        let refused = check::undeletable(ctx, self.requesters, &tried, self.reason).await?;
        kept.extend(refused);
        for kept in &mut kept {
            if let NoDeletionReason::Other(why) = &mut kept.why
                && self.rule.exceeds_delegation(&kept.id)
            {
                why.push_str(" (spec.targets of the class does not include this object)");
            }
        }
        Ok(kept)
    }
}
