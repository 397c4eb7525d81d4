//! Checks of the permissions of the requesters before every change. The modules `authorize` and
//! `dry_runs` send the requests. The module `permission_cycle` repeats the access reviews
//! periodically.

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::{ActingAccount, Consent, ConsentRule, ObjectAction};
use bundle_core::plan::decision::DecidedObjects;
use bundle_core::plan::status::PermissionFact;
use bundle_core::review::Requester;
use bundle_core::review::class::Authorization;
use bundle_core::rights::AccessReview;

use crate::clients::allowed_reviews::AllowedReviews;
use crate::reconcile::apply::ApplyPlan;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::authorized::Replacements;
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::rights::authorize;
use crate::reconcile::rights::dry_runs::check::{DryRunCheck, DryRunInput, RequiredConsent};
use crate::reconcile::rights::missing_rights;
use crate::reconcile::rights::removal_permissions::{Deletions, named_account};

/// If access reviews deny the installation, dry runs are sent to compare their results with the
/// results of the access reviews. Maximum number of objects in this comparison.
const MAX_COMPARED: usize = 20;

impl<'a> DeploymentReconcile<'a> {
    /// Returns the requesters who need permissions for the content.
    pub(in crate::reconcile) fn content_requesters(&self) -> Vec<Requester> {
        let present = self.parts.content().into_iter();
        present.chain(&self.departed_requesters).cloned().collect()
    }

    /// Returns the requester of the current spec with the same user as `former`. Returns `former`
    /// if no requester of the spec is this user.
    pub(in crate::reconcile) fn present_requester(&self, former: &Requester) -> Requester {
        let mut present = self.parts.content().into_iter();
        let found = present.find(|requester| requester.is_same_user(former));
        found.unwrap_or(former).clone()
    }

    /// Returns the rule that decides which users need permission to write an object. The caller
    /// must call `check_terms` before.
    pub(in crate::reconcile) fn consent_rule(&self, request: &InstallRequest<'_>) -> ConsentRule {
        let decided = if self.is_decided(request) {
            DecidedObjects::ALL
        } else {
            DecidedObjects::None
        };
        ConsentRule::new(Some(self.class), ActingAccount::Granted, decided)
    }

    /// Checks the permissions of the requesters to install `items`. Returns three values: the
    /// dry-run check, which is used again in each round; the plan of applies; and the objects to
    /// replace. `first` is true if this content is not installed yet.
    pub(in crate::reconcile) async fn authorize<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        (act, first): (ObjectAction, bool),
    ) -> Result<(DryRunCheck<'a>, ApplyPlan<'i>, Replacements), ReconcileError> {
        let translate = if first {
            std::convert::identity
        } else {
            as_withdrawn_permission
        };
        let asked = self.check_and_plan(request, items, (act, translate)).await;
        let asked = asked.map_err(|error| {
            translate(ReconcileError {
                reason: self.install_reason(),
                ..error
            })
        })?;
        self.set_authorized();
        Ok(asked)
    }

    async fn check_and_plan<'i>(
        &self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        (act, translate): (ObjectAction, fn(ReconcileError) -> ReconcileError),
    ) -> Result<(DryRunCheck<'a>, ApplyPlan<'i>, Replacements), ReconcileError> {
        let check = self
            .check_permissions(request, items, act, (true, translate))
            .await?;
        // The objects are read only after the access reviews, because errors about objects disclose
        // which objects exist.
        let mut plan = self.plan(request, items, &check).await?;
        let replacements = self.replacements(request, items, &check, &mut plan).await?;
        check.check_plan(items, &mut plan).await?;
        Ok((check, plan, replacements))
    }

    /// Checks by access reviews that the requesters have permission to write the drifted objects
    /// `items`. Returns the check that sends the dry runs as the requesters.
    pub(in crate::reconcile) async fn authorize_repair(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<DryRunCheck<'a>, ReconcileError> {
        let how = (
            false,
            withdrawn_from_installed as fn(ReconcileError) -> ReconcileError,
        );
        self.check_permissions(request, items, ObjectAction::Restore, how)
            .await
            .map_err(withdrawn_from_installed)
    }

    /// Checks that the requesters can still use the class and the ServiceAccount. Called directly
    /// before objects are pruned. [`Self::objects_to_keep`] checks the permissions for each object.
    pub(in crate::reconcile) async fn check_before_prune(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        self.check_terms(request)
            .await
            .map_err(withdrawn_from_installed)
    }

    /// Checks by access reviews that the requesters have permission to install `items`. Called
    /// before errors that disclose objects on the cluster are reported.
    pub(in crate::reconcile) async fn check_access(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        self.check_terms(request).await?;
        self.run_access_reviews(request, items, ObjectAction::Install, None)
            .await
            .map_err(|error| ReconcileError {
                reason: self.install_reason(),
                ..error
            })
    }

    /// Runs the permission checks that do not read objects from the cluster. Returns the check that
    /// sends the dry runs as the requesters.
    ///
    /// Until an installation of the BundleDeployment is recorded, allowed access reviews for kinds
    /// are valid for one second, also for other BundleDeployments of the same requester. In this
    /// case, cached results of dry runs are not used. Therefore the API server still checks the
    /// current permissions of the requesters for each object.
    async fn check_permissions(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        act: ObjectAction,
        (remembers, translate): (bool, fn(ReconcileError) -> ReconcileError),
    ) -> Result<DryRunCheck<'a>, ReconcileError> {
        self.check_terms(request).await?;
        let consent = RequiredConsent {
            rule: self.consent_rule(request),
            action: act,
        };
        let by_dry_run = items.iter().any(|item| consent.is_by_dry_run(&item.id));
        let requesters = if by_dry_run {
            self.content_requesters()
        } else {
            Vec::new()
        };
        let uses_recent = by_dry_run
            && act == ObjectAction::Install
            && self.inventory.is_empty()
            && self.inventory.record.is_none();
        let input = DryRunInput {
            requesters: &requesters,
            class: &self.class.name,
            account: request.account,
            reason: request.reason,
            preparer: self.preparer(request),
            remembers: remembers && !uses_recent,
            translate,
            consent,
        };
        let check = DryRunCheck::new(self.ctx, input).await?;
        let recent = uses_recent.then_some(&self.ctx.shared.allowed_reviews);
        let reviewed = self.run_access_reviews(request, items, act, recent).await;
        if let Err(error) = &reviewed
            && by_dry_run
            && error.code == codes::install::NOT_AUTHORIZED
        {
            self.compare_reviews(&check, request, items).await;
        }
        reviewed?;
        Ok(check)
    }

    /// Checks verb `use` on the classes and verb `impersonate` on `spec.serviceAccount`.
    pub(super) async fn check_terms(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let terms = self.review_terms();
        for (requester, question) in terms.questions(self.ctx.shared.settings.namespace.as_str()) {
            if !authorize::has_permission(&self.ctx.own, requester, &question).await? {
                return Err(lost_permission(requester, &question, request.reason));
            }
        }
        Ok(())
    }

    /// Sends the access reviews for those `items` that require permissions of the requesters. The
    /// error lists all missing permissions of a requester. [`authorize::authorize`] explains
    /// `recent`.
    pub(super) async fn run_access_reviews(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        act: ObjectAction,
        recent: Option<&AllowedReviews>,
    ) -> Result<(), ReconcileError> {
        let rule = self.consent_rule(request);
        let asked: Vec<&PreparedObject> = items
            .iter()
            .filter(|item| rule.consent(act, &item.id) != Consent::Delegated)
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let installer = (request.account, request.client);
        for requester in &self.content_requesters() {
            let objects = (asked.as_slice(), items);
            authorize::authorize(&self.ctx.own, installer, requester, objects, recent).await?;
        }
        Ok(())
    }

    /// Logs and counts objects for which the access review is denied and the dry run is allowed.
    /// Such objects are still not installed.
    async fn compare_reviews(
        &self,
        check: &DryRunCheck<'_>,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) {
        let installer = (request.account, request.client);
        let mut refused = Vec::new();
        for item in items.iter().take(MAX_COMPARED) {
            for requester in &self.content_requesters() {
                // If the access review fails, the object is skipped.
                let asked = authorize::is_patch_denied(&self.ctx.own, requester, item).await;
                if asked.unwrap_or(false) {
                    refused.push(item);
                }
            }
        }
        let allowed = check.allowed(refused).await;
        if allowed > 0 {
            tracing::warn!(
                deployment = self.name,
                installer = installer.0.user_name(),
                objects = allowed,
                "access reviews denied objects that the API server allowed in the dry run"
            );
            let metrics = &self.ctx.shared.metrics;
            metrics.authorization_disagreed(allowed);
        }
    }

    /// Returns those of `objects` that must not be deleted because of missing permissions, and the
    /// reason for each.
    pub(in crate::reconcile) async fn objects_to_keep(
        &self,
        objects: &[SharedPresentObject],
        reason: &'static str,
    ) -> Result<Vec<KeptObject>, ReconcileError> {
        let requesters = self.content_requesters();
        let account = match &self.spec.service_account {
            Some(account) => named_account(self.ctx, account, &requesters).await?,
            None => ActingAccount::Granted,
        };
        let deletions = Deletions {
            ctx: self.ctx,
            rule: &ConsentRule::new(Some(self.class), account, self.decided_objects()),
            act: ObjectAction::Prune,
            requesters: &requesters,
            reason,
        };
        deletions.undeletable(objects).await
    }

    pub(super) fn set_authorized(&mut self) {
        self.facts.rights = Some(match self.class.authorization {
            Authorization::Class => PermissionFact::Delegated(self.class.name.clone()),
            Authorization::Requester => {
                let requesters = self.content_requesters().into_iter();
                PermissionFact::Allowed(requesters.map(|requester| requester.user).collect())
            }
        });
    }
}

/// Returns the error for a requester who had this permission when the spec was admitted, and no
/// longer has the permission.
pub(in crate::reconcile) fn lost_permission(
    requester: &Requester,
    question: &AccessReview,
    reason: &'static str,
) -> ReconcileError {
    let rules = missing_rights::rules(std::slice::from_ref(question));
    ReconcileError::new(
        codes::install::RIGHTS_WITHDRAWN,
        reason,
        format!(
            "{} no longer has these permissions: {rules} (grant the permissions again, or let a user with these permissions write the spec)",
            requester.user
        ),
        RetryPolicy::Slowly,
    )
}

/// Changes the code of an error about missing permissions to `RIGHTS_WITHDRAWN`. Used for content
/// that was allowed before.
fn as_withdrawn_permission(error: ReconcileError) -> ReconcileError {
    let refused = [
        codes::install::NOT_AUTHORIZED,
        codes::install::REQUESTER_REFUSED,
    ];
    if !refused.contains(&error.code) {
        return error;
    }
    ReconcileError {
        code: codes::install::RIGHTS_WITHDRAWN,
        ..error
    }
}

/// Converts the error of a permission check for installed objects. The reason is changed, so that
/// the error does not change the condition `Installed`.
pub(in crate::reconcile) fn withdrawn_from_installed(error: ReconcileError) -> ReconcileError {
    let error = as_withdrawn_permission(error);
    if error.code != codes::install::RIGHTS_WITHDRAWN {
        return ReconcileError {
            reason: reason::RECONCILE_FAILED,
            ..error
        };
    }
    ReconcileError {
        reason: reason::RIGHTS_WITHDRAWN,
        message: format!(
            "the installed objects stay, and nothing is changed: {}",
            error.message
        ),
        ..error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rejections_become_withdrawn_permissions() {
        let with =
            |code| ReconcileError::new(code, reason::INSTALL_FAILED, "why", RetryPolicy::Slowly);
        let found = withdrawn_from_installed(with(codes::install::REQUESTER_REFUSED));
        assert_eq!(
            (found.code, found.reason),
            (codes::install::RIGHTS_WITHDRAWN, reason::RIGHTS_WITHDRAWN)
        );
        let unknown = with(codes::install::RIGHTS_UNKNOWN);
        assert_eq!(withdrawn_from_installed(unknown.clone()).code, unknown.code);
    }
}
