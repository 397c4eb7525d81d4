//! Dry runs of the objects of content as the requesters, before the installer applies the objects.
//! `requester_permissions` decides when access reviews and dry runs are sent. `authorize` sends the
//! access reviews, and `apply` sends single dry runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::phases::Phase;
use bundle_core::review::Requester;
use bundle_core::rights::{ContentDependencies, DryRunVerdict};
use futures::StreamExt as _;

use crate::clients::cluster::ServiceAccount;
use crate::dry_run::RequesterDryRun;
pub(in crate::reconcile) use crate::reconcile::apply::RequiredConsent;
use crate::reconcile::apply::{
    ApplyClient, ApplyPlan, ApplyRejection, CheckedApply, DryRuns, Preparer,
};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::rights::dry_runs::failures::DryRunFailures;

/// Time limit for the retries of one check, while the API server is busy or does not serve a new
/// kind yet.
const RETRY_LIMIT: Duration = Duration::from_secs(5);

/// The dry-run check of the objects of content. Objects that cannot be checked before the first
/// apply are checked directly before they are applied.
pub(in crate::reconcile) struct DryRunCheck<'a> {
    ctx: &'a Context,
    client: ApplyClient<'a>,
    reason: &'static str,
    /// Function that converts the error about rejected objects to the error that the caller
    /// reports.
    translate: fn(ReconcileError) -> ReconcileError,
}

/// The input of [`DryRunCheck`].
pub(in crate::reconcile) struct DryRunInput<'a> {
    /// The requesters of the content. Empty if no object requires a dry run.
    pub(in crate::reconcile) requesters: &'a [Requester],
    pub(in crate::reconcile) class: &'a str,
    /// The installing ServiceAccount.
    pub(in crate::reconcile) account: &'a ServiceAccount,
    /// Reason of the condition that reports a failed check.
    pub(in crate::reconcile) reason: &'static str,
    pub(in crate::reconcile) preparer: Preparer,
    pub(in crate::reconcile) remembers: bool,
    pub(in crate::reconcile) translate: fn(ReconcileError) -> ReconcileError,
    /// The rule that decides which objects require dry runs as the requesters.
    pub(in crate::reconcile) consent: RequiredConsent,
}

impl<'a> DryRunCheck<'a> {
    pub(in crate::reconcile) async fn new(
        ctx: &'a Context,
        input: DryRunInput<'_>,
    ) -> Result<Self, ReconcileError> {
        let mutated = if input.requesters.is_empty() {
            Arc::default()
        } else {
            ctx.mutators.kinds(&ctx.apis, &ctx.own).await
        };
        let dry_runs = DryRuns {
            runs: runs(ctx, input.requesters, input.reason)?,
            class: input.class.to_owned(),
            memory: &ctx.allowed_dry_runs,
            slots: ctx.apply_slots.clone(),
            uses_cache: input.remembers,
            mutated,
            installer: input.preparer.client.clone(),
            account: input.account.clone(),
            consent: input.consent,
        };
        Ok(Self {
            ctx,
            client: ApplyClient {
                preparer: input.preparer,
                dry_runs,
            },
            reason: input.reason,
            translate: input.translate,
        })
    }

    pub(in crate::reconcile) fn apply_client(&self) -> &ApplyClient<'a> {
        &self.client
    }

    pub(in crate::reconcile) fn preparer(&self) -> &Preparer {
        &self.client.preparer
    }

    /// Checks the objects of the plan that the API server can check before the first apply. The
    /// other objects depend on objects of the content, or are in a namespace that does not exist
    /// yet. [`Self::check_round`] checks them later.
    pub(in crate::reconcile) async fn check_plan<'i>(
        &self,
        items: &'i [PreparedObject],
        plan: &mut ApplyPlan<'i>,
    ) -> Result<(), ReconcileError> {
        let provided = ContentDependencies::by(items.iter().map(|item| (&item.id, &item.value)));
        let (namespaces, others): (Vec<&PreparedObject>, Vec<&PreparedObject>) = items
            .iter()
            .partition(|item| item.phase == Phase::Namespaces);
        let absent: BTreeSet<&str> = namespaces
            .iter()
            .filter(|item| plan.creates(item))
            .map(|item| item.id.name.as_str())
            .collect();
        let mut failures = DryRunFailures::default();
        // Some failures are ignored here, because objects of earlier phases can grant missing
        // permissions to the installer.
        let is_reported: fn(&ApplyRejection) -> bool =
            |refusal| !is_checked_again_before_apply(refusal);
        self.check(&namespaces, plan, false, (&mut failures, is_reported))
            .await;
        let now: Vec<&PreparedObject> = others
            .into_iter()
            .filter(|item| {
                let namespace = item.id.namespace.as_deref();
                let waits = item.is_defined_by_content
                    || provided.depends_on_content(&item.id, &item.value)
                    || namespace.is_some_and(|namespace| absent.contains(namespace));
                !waits
            })
            .collect();
        let is_reported: fn(&ApplyRejection) -> bool = |refusal| {
            let is_missing = matches!(refusal, ApplyRejection::Verdict(DryRunVerdict::Missing(_)));
            !is_missing && !is_checked_again_before_apply(refusal)
        };
        self.check(&now, plan, false, (&mut failures, is_reported))
            .await;
        self.result(failures)
    }

    /// Checks those of `items` whose check is missing or expired. Returns the checked applies of
    /// all `items`. Called directly before the objects are applied.
    pub(in crate::reconcile) async fn check_round<'i>(
        &self,
        items: &[&'i PreparedObject],
        plan: &mut ApplyPlan<'i>,
    ) -> Result<Vec<CheckedApply<'i>>, ReconcileError> {
        let (checked, result) = self.check_drifted(items, plan).await;
        result.map(|()| checked)
    }

    /// Like [`Self::check_round`], but returns the checked applies even if the checks of other
    /// objects failed.
    pub(in crate::reconcile) async fn check_drifted<'i>(
        &self,
        items: &[&'i PreparedObject],
        plan: &mut ApplyPlan<'i>,
    ) -> (Vec<CheckedApply<'i>>, Result<(), ReconcileError>) {
        let mut failures = DryRunFailures::default();
        plan.drop_stale_checks(items);
        let is_reported: fn(&ApplyRejection) -> bool = |_| true;
        self.check(items, plan, true, (&mut failures, is_reported))
            .await;
        let checked = items
            .iter()
            .filter_map(|item| plan.take_checked(item))
            .collect();
        (checked, self.result(failures))
    }

    /// Returns the number of `items` whose apply to the current object passes the dry runs.
    pub(in crate::reconcile) async fn allowed(&self, items: Vec<&PreparedObject>) -> u64 {
        let answers = crate::reconcile::api::parallel::all(
            items
                .into_iter()
                .map(|item| async move { self.client.is_allowed(item).await }),
        )
        .await;
        let allowed = answers.into_iter().filter(|allowed| *allowed);
        u64::try_from(allowed.count()).unwrap_or(u64::MAX)
    }

    /// Checks those of `items` whose applies in the plan are not checked yet. Adds the failures for
    /// which `is_reported` returns true to `failures`. `is_due` is true directly before the objects
    /// are applied.
    async fn check<'i>(
        &self,
        items: &[&'i PreparedObject],
        plan: &mut ApplyPlan<'i>,
        is_due: bool,
        (failures, is_reported): (&mut DryRunFailures, fn(&ApplyRejection) -> bool),
    ) {
        let end = Instant::now() + RETRY_LIMIT;
        let waiting: Vec<_> = items
            .iter()
            .filter_map(|item| plan.take_waiting(item))
            .collect();
        let mut results = crate::reconcile::api::parallel::ordered_stream(
            waiting
                .into_iter()
                .map(|prepared| async move { self.client.check(prepared, is_due, end).await }),
        );
        while let Some(result) = results.next().await {
            match result {
                Ok(checked) => plan.put_checked(checked),
                Err((prepared, refusal)) => {
                    if is_reported(&refusal) {
                        failures.add(prepared.item(), refusal);
                    }
                    plan.put_back(prepared);
                }
            }
        }
    }

    /// Logs and counts objects for which access reviews and dry runs have different results. Fails
    /// if `failures` is not empty.
    pub(in crate::reconcile) fn result(
        &self,
        failures: DryRunFailures,
    ) -> Result<(), ReconcileError> {
        let users: Vec<&str> = self
            .client
            .dry_runs
            .runs
            .iter()
            .map(|(requester, _)| requester.user.as_str())
            .collect();
        let users = users.join(", ");
        failures.count_disagreements(&users, &self.ctx.shared.metrics);
        failures
            .into_result(&users, self.reason)
            .map_err(self.translate)
    }
}

/// Returns true if an object with this rejection is checked again directly before it is applied.
/// Until then the cause may be removed: the installer may get the permission, or the ownership of
/// lists with conflicting items may be moved.
fn is_checked_again_before_apply(refusal: &ApplyRejection) -> bool {
    matches!(
        refusal,
        ApplyRejection::Installer(_) | ApplyRejection::SharedLists(..)
    )
}

fn runs(
    ctx: &Context,
    requesters: &[Requester],
    reason: &'static str,
) -> Result<Vec<(Requester, RequesterDryRun)>, ReconcileError> {
    requesters
        .iter()
        .map(|requester| {
            let run = ctx.shared.dry_run_as(requester).map_err(|error| {
                ReconcileError::new(
                    codes::install::NOT_IMPERSONATED,
                    reason,
                    format!("cannot send a dry run as {:?}: {error}", requester.user),
                    RetryPolicy::OnChange,
                )
            })?;
            Ok((requester.clone(), run))
        })
        .collect()
}

/// Sends a dry run of the deletion of each of `objects` as each requester. Returns the objects
/// whose deletion is rejected, each with the message of the API server.
pub(in crate::reconcile) async fn undeletable(
    ctx: &Context,
    requesters: &[Requester],
    objects: &[&SharedPresentObject],
    reason: &'static str,
) -> Result<Vec<KeptObject>, ReconcileError> {
    let mut refused = Vec::new();
    for (requester, run) in &runs(ctx, requesters, reason)? {
        let mut failures = DryRunFailures::default();
        let mut answers = crate::reconcile::api::parallel::ordered_stream(objects.iter().map(
            |present| async move {
                let uid = &present.uid;
                let verdict = run.delete(&present.kind.resource, &present.id, uid).await;
                (*present, verdict)
            },
        ));
        while let Some((present, verdict)) = answers.next().await {
            // Access reviews have already allowed these deletions, so a rejection by RBAC is a
            // different result and is counted.
            failures.by_rbac += u64::from(verdict.is_by_rbac());
            match verdict {
                DryRunVerdict::Refused { message: why, .. }
                | DryRunVerdict::Invalid(why)
                | DryRunVerdict::Unsupported(why) => {
                    refused.push(KeptObject {
                        id: present.id.clone(),
                        why: format!("{} has no permission to delete it: {why}", requester.user)
                            .into(),
                    });
                }
                DryRunVerdict::NotImpersonated(words) => failures.not_impersonated.insert(words),
                DryRunVerdict::Missing(words) | DryRunVerdict::Unknown(words) => {
                    failures.unknown.insert(format!("{}: {words}", present.id));
                }
                DryRunVerdict::Allowed => {}
            }
        }
        failures.count_disagreements(&requester.user, &ctx.shared.metrics);
        failures.into_result(&requester.user, reason)?;
    }
    Ok(refused)
}
