//! Checks the rights of the requesters before every change and on a slow cycle.
//! The questions themselves are in `authorize` and `requester_check`.

use std::time::{Duration, Instant};

use bundle_api::names::{self, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::{ActingAccount, Consent, ConsentRule, ObjectAction};
use bundle_core::plan::decision::DecidedObjects;
use bundle_core::plan::status::PermissionFact;
use bundle_core::review::Requester;
use bundle_core::review::class::Authorization;
use bundle_core::rights::Question;

use crate::reconcile::content::items::Item;
use crate::reconcile::deployment::controller::DeploymentReconcile;
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::apply::ApplyPlan;
use crate::reconcile::install::replace::Replacements;
use crate::reconcile::removal::remove::{KeptObject, Present};
use crate::reconcile::rights::authorize;
use crate::reconcile::rights::removal_rights::{Deletions, impersonation, named_account};
use crate::reconcile::rights::requester_check::{RequesterCheck, Subject, TakenConsent};

/// How many objects are compared where the access reviews refuse a content.
const COMPARED: usize = 20;
/// How soon the cycle asks again after it could not find out.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(30);

impl<'a> DeploymentReconcile<'a> {
    /// The requesters whose rights the content needs.
    fn content_requesters(&self) -> Vec<Requester> {
        self.parts.content().into_iter().cloned().collect()
    }

    /// The rule for the consent that writing an object takes, once the terms have been asked.
    pub(in crate::reconcile) fn consent_rule(&self, request: &InstallRequest<'_>) -> ConsentRule {
        let decided = if self.is_decided(request) {
            DecidedObjects::ALL
        } else {
            DecidedObjects::None
        };
        ConsentRule::new(Some(self.class), ActingAccount::Granted, decided)
    }

    /// Checks whether the requesters may install `items`. Returns what will be applied, and the check that the phases continue.
    /// `first` says that this content was not installed before.
    pub(in crate::reconcile) async fn authorize<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [Item],
        (act, first): (ObjectAction, bool),
    ) -> Result<(RequesterCheck<'a>, ApplyPlan<'i>, Replacements), ReconcileError> {
        let translate = if first {
            std::convert::identity
        } else {
            withdrawn
        };
        let asked = self.ask_and_plan(request, items, (act, translate)).await;
        let asked = asked.map_err(|error| {
            translate(ReconcileError {
                reason: self.install_reason(),
                ..error
            })
        })?;
        self.set_authorized();
        Ok(asked)
    }

    async fn ask_and_plan<'i>(
        &self,
        request: &InstallRequest<'_>,
        items: &'i [Item],
        (act, translate): (ObjectAction, fn(ReconcileError) -> ReconcileError),
    ) -> Result<(RequesterCheck<'a>, ApplyPlan<'i>, Replacements), ReconcileError> {
        let check = self.ask(request, items, act, (true, translate)).await?;
        // Not before the reviews: whoever may not write an object is not told whether it exists.
        let mut plan = self.plan(request, items, &check).await?;
        let replacements = self.replacements(request, items, &check, &mut plan).await?;
        check.before_all(items, &mut plan).await?;
        Ok((check, plan, replacements))
    }

    /// Checks whether the requesters may write `items`, installed objects that have drifted, by access reviews. The check that it returns does the rest.
    pub(in crate::reconcile) async fn authorize_repair(
        &self,
        request: &InstallRequest<'_>,
        items: &[Item],
    ) -> Result<RequesterCheck<'a>, ReconcileError> {
        let how = (
            false,
            withdrawn_from_installed as fn(ReconcileError) -> ReconcileError,
        );
        self.ask(request, items, ObjectAction::Restore, how)
            .await
            .map_err(withdrawn_from_installed)
    }

    /// Runs the slow cycle: repeats the access reviews if they are due, and returns the time until the next run. An unknown result changes nothing, since
    /// every change is preceded by a check of its own.
    pub(in crate::reconcile) async fn rights_cycle(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<Duration, ReconcileError> {
        let interval = self.ctx.shared.settings.rights_check_interval;
        let uid = self.object.metadata.uid.clone().unwrap_or_default();
        let schedule = &self.ctx.rights_schedule;
        let wait = schedule.wait(&uid, Instant::now(), interval);
        if !wait.is_zero() && self.facts.is_authorized(self.conditions.list()) {
            return Ok(wait);
        }
        match self
            .ask_again(request)
            .await
            .map_err(withdrawn_from_installed)
        {
            Ok(()) => {
                schedule.asked(&uid, Instant::now(), interval);
                self.set_authorized();
                Ok(crate::reconcile::spread(interval))
            }
            Err(error) if error.code == codes::install::RIGHTS_WITHDRAWN => Err(error),
            Err(error) => {
                tracing::warn!(
                    deployment = self.name,
                    why = error.message,
                    "the rights of the requesters cannot be asked again now"
                );
                Ok(crate::reconcile::spread(UNKNOWN_AGAIN))
            }
        }
    }

    /// Checks that the requesters may still use class and ServiceAccount, right before objects that the content does not have any more are deleted. Who has to
    /// agree to each of them is asked by [`Self::undeletable`].
    pub(in crate::reconcile) async fn ask_for_prune(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        self.ask_terms(request)
            .await
            .map_err(withdrawn_from_installed)
    }

    async fn ask_again(&mut self, request: &InstallRequest<'_>) -> Result<(), ReconcileError> {
        self.ask_terms(request).await?;
        let items = self.items(request).await?;
        self.ask_reviews(request, &items, ObjectAction::Restore)
            .await
    }

    /// Runs the checks that need no look at the objects, the cheapest first.
    async fn ask(
        &self,
        request: &InstallRequest<'_>,
        items: &[Item],
        act: ObjectAction,
        (remembers, translate): (bool, fn(ReconcileError) -> ReconcileError),
    ) -> Result<RequesterCheck<'a>, ReconcileError> {
        self.ask_terms(request).await?;
        let consent = TakenConsent {
            rule: self.consent_rule(request),
            act,
        };
        let by_dry_run = items.iter().any(|item| consent.is_by_dry_run(&item.id));
        let requesters = if by_dry_run {
            self.content_requesters()
        } else {
            Vec::new()
        };
        let subject = Subject {
            requesters: &requesters,
            class: &self.class.name,
            account: request.account,
            reason: request.reason,
            preparer: self.preparer(request),
            remembers,
            translate,
            consent,
        };
        let check = RequesterCheck::new(self.ctx, subject).await?;
        let reviewed = self.ask_reviews(request, items, act).await;
        if let Err(error) = &reviewed
            && by_dry_run
            && error.code == codes::install::NOT_AUTHORIZED
        {
            self.compare(&check, request, items).await;
        }
        reviewed?;
        Ok(check)
    }

    /// Checks verb `use` on the classes and verb `impersonate` on `spec.serviceAccount`.
    async fn ask_terms(&self, request: &InstallRequest<'_>) -> Result<(), ReconcileError> {
        let system = self.ctx.shared.settings.namespace.as_str();
        let on_class = |name: &str| {
            Question::resource(
                names::verb::USE,
                names::GROUP,
                &self.ctx.classes.plural,
                Some(system),
                Some(name),
            )
        };
        let of_bundle = &self.spec.template.bundle.class;
        // Of everybody who asked for a part: the terms of others are not theirs to use.
        let requesters = self.content_requesters();
        let mut questions: Vec<_> = requesters
            .iter()
            .map(|who| (who, on_class(&self.class.name)))
            .collect();
        if of_bundle.as_str() != self.class.name {
            questions.extend(requesters.iter().map(|who| (who, on_class(of_bundle))));
        }
        if let Some(account) = &self.spec.service_account {
            let question = impersonation(account);
            questions.extend(requesters.iter().map(|who| (who, question.clone())));
        }
        for (requester, question) in questions {
            if !authorize::may(&self.ctx.own, requester, &question).await? {
                let rules = authorize::rules(std::slice::from_ref(&question));
                let message = format!("{} may not do this any more: {rules}", requester.user);
                return Err(ReconcileError::new(
                    codes::install::RIGHTS_WITHDRAWN,
                    request.reason,
                    message,
                    RetryPolicy::Slowly,
                ));
            }
        }
        Ok(())
    }

    /// Runs the access reviews for those of `items` that take the consent of the requesters. They list all missing rights at once.
    async fn ask_reviews(
        &self,
        request: &InstallRequest<'_>,
        items: &[Item],
        act: ObjectAction,
    ) -> Result<(), ReconcileError> {
        let rule = self.consent_rule(request);
        let asked: Vec<&Item> = items
            .iter()
            .filter(|item| rule.consent(act, &item.id) != Consent::Delegated)
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let installer = (request.account, request.client);
        for requester in &self.content_requesters() {
            authorize::authorize(&self.ctx.own, installer, requester, (&asked, items)).await?;
        }
        Ok(())
    }

    /// Logs and counts objects that the access reviews refuse and the dry run allows. They stay refused.
    async fn compare(
        &self,
        check: &RequesterCheck<'_>,
        request: &InstallRequest<'_>,
        items: &[Item],
    ) {
        let installer = (request.account, request.client);
        let mut refused = Vec::new();
        for item in items.iter().take(COMPARED) {
            for requester in &self.content_requesters() {
                // What cannot be asked now is compared another time.
                let asked = authorize::patch_is_refused(&self.ctx.own, requester, item).await;
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
                "the access reviews refuse what the API server allows in the dry run"
            );
            let metrics = &self.ctx.shared.metrics;
            metrics.authorization_disagreed(allowed);
        }
    }

    /// Returns those of `objects` that the content does not have any more and that may not be deleted, with the reason.
    pub(in crate::reconcile) async fn undeletable(
        &self,
        objects: &[Present],
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

    fn set_authorized(&mut self) {
        self.facts.rights = Some(match self.class.authorization {
            Authorization::Class => PermissionFact::Delegated(self.class.name.clone()),
            Authorization::Requester => {
                let requesters = self.content_requesters().into_iter();
                PermissionFact::Allowed(requesters.map(|requester| requester.user).collect())
            }
        });
    }
}

/// Turns a refusal of content that was allowed before into withdrawn rights.
fn withdrawn(error: ReconcileError) -> ReconcileError {
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

/// The same for installed objects, with reasons that leave the condition `Installed` alone.
fn withdrawn_from_installed(error: ReconcileError) -> ReconcileError {
    let error = withdrawn(error);
    if error.code != codes::install::RIGHTS_WITHDRAWN {
        return ReconcileError {
            reason: reason::RECONCILE_FAILED,
            ..error
        };
    }
    ReconcileError {
        reason: reason::RIGHTS_WITHDRAWN,
        message: format!(
            "nothing is changed any more, and what is installed stays: {}",
            error.message
        ),
        ..error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_become_withdrawn_rights() {
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
