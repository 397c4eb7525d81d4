//! Asks whether objects may be deleted, before an upgrade or a removal deletes them, and whether a ServiceAccount may be used for that.
//! The consent that a deletion takes is in `bundle_core::plan::consent`, and what becomes of the objects that stay in `bundle_core::plan::removal`.

use std::collections::BTreeSet;

use bundle_core::object::ObjectId;
use bundle_core::plan::consent::{ActingAccount, Consent, ConsentRule, ObjectAction};
use bundle_core::review::Requester;
use bundle_core::review::class::RequesterCheck;
use bundle_core::rights::Question;
use bundle_core::service_account::ServiceAccount;

use crate::reconcile::context::Context;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::removal::remove::{KeptObject, Present};
use crate::reconcile::rights::authorize;
use crate::reconcile::rights::requester_check;

/// The right to act as the ServiceAccount that a spec names.
pub(in crate::reconcile) fn impersonation(account: &ServiceAccount) -> Question {
    Question::resource(
        "impersonate",
        "",
        "serviceaccounts",
        Some(&account.namespace),
        Some(&account.name),
    )
}

/// Returns whether the ServiceAccount that `spec.serviceAccount` names may be used: all `requesters` may impersonate it now.
pub(in crate::reconcile) async fn named_account(
    ctx: &Context,
    account: &ServiceAccount,
    requesters: &[Requester],
) -> Result<ActingAccount, ReconcileError> {
    let question = impersonation(account);
    for requester in requesters {
        if !authorize::may(&ctx.own, requester, &question).await? {
            let ServiceAccount { namespace, name } = account;
            return Ok(ActingAccount::Withdrawn(format!(
                "{} may not impersonate ServiceAccount {namespace}/{name}",
                requester.user
            )));
        }
    }
    Ok(ActingAccount::Granted)
}

/// Deletions that somebody may have to be asked about.
pub(in crate::reconcile) struct Deletions<'a> {
    pub(in crate::reconcile) ctx: &'a Context,
    pub(in crate::reconcile) rule: &'a ConsentRule,
    pub(in crate::reconcile) act: ObjectAction,
    /// Everybody who asked for a part of the content.
    pub(in crate::reconcile) requesters: &'a [Requester],
    /// The reason of the condition if they cannot be asked.
    pub(in crate::reconcile) reason: &'static str,
}

impl Deletions<'_> {
    /// Returns those of `objects` that may not be deleted, once for each requester who may not, with the reason.
    pub(in crate::reconcile) async fn undeletable(
        &self,
        objects: &[Present],
    ) -> Result<Vec<KeptObject>, ReconcileError> {
        let mut kept: Vec<KeptObject> = Vec::new();
        let mut reviewed: Vec<Present> = Vec::new();
        let mut tried: Vec<&Present> = Vec::new();
        for present in objects {
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
                    why: refusal.to_string(),
                }),
            }
        }
        let ctx = self.ctx;
        for requester in self.requesters {
            let refused = authorize::undeletable(&ctx.own, requester, &reviewed).await?;
            kept.extend(refused.into_iter().map(|id| KeptObject {
                why: format!("{} may not delete it", requester.user),
                id,
            }));
        }
        let refused: BTreeSet<&ObjectId> = kept.iter().map(|kept| &kept.id).collect();
        tried.retain(|present| !refused.contains(&present.id));
        let refused =
            requester_check::undeletable(ctx, self.requesters, &tried, self.reason).await?;
        kept.extend(refused);
        for kept in &mut kept {
            if self.rule.exceeds_delegation(&kept.id) {
                kept.why
                    .push_str(" (it lies outside of what the class decides)");
            }
        }
        Ok(kept)
    }
}
