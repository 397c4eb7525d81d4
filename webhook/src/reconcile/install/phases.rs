//! Applies the objects of content in rounds. A round is a group of objects that are applied at the
//! same time. Permissions, approval, spec and class are checked again between rounds, because an
//! installation can take minutes. `bundle_core::plan::rounds` orders the steps.

use std::collections::HashMap;

use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::ObjectAction;
use bundle_core::plan::rollout::AwaitedPhase;
use bundle_core::plan::rounds::{self, ObservedRound, Preconditions, RoundStep};
use bundle_core::review::Class;
use kube::api::DynamicObject;

use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::context::ClassLookup;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::drift::states::AppliedState;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::authorized::AuthorizedInstall;
use crate::reconcile::install::executor::ApplyResults;
use crate::reconcile::install::record::Intents;

/// The result of applying the objects of content if no apply failed.
pub(in crate::reconcile) enum ApplyOutcome {
    /// All objects are applied. Contains the state of each object, by object key.
    Complete(HashMap<String, AppliedState>),
    /// Only the objects of the first phases are applied. The installation waits until the objects
    /// of the last applied phase are healthy.
    WaitsForPhase,
}

/// Settings for applying the objects of content.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct ApplyMode {
    /// True if all kinds of the content are watched.
    pub(in crate::reconcile) is_watched: bool,
    /// True if this content is not installed yet.
    pub(in crate::reconcile) is_first: bool,
    /// True if each phase begins only after the objects of the previous phase are healthy.
    pub(in crate::reconcile) is_gated: bool,
}

impl<'a> DeploymentReconcile<'a> {
    /// Records and applies all `items`, which are sorted by phase.
    pub(in crate::reconcile) async fn apply<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        mode: ApplyMode,
        mut authorized: AuthorizedInstall<'a, 'i>,
    ) -> Result<ApplyOutcome, ReconcileError> {
        let all: Vec<&PreparedObject> = items.iter().collect();
        self.check_namespaces(
            request,
            &all,
            (ObjectAction::Install, &authorized.namespaces),
        )
        .await?;
        self.check_before_record(&all, &authorized.namespaces)
            .await?;
        self.reserve_objects(items)?;
        // All objects are recorded before the first apply, so that the inventory contains every
        // applied object even after a crash. The same write records the beginning of the
        // installation.
        let begun = self.with_installation(request, &authorized.namespaces);
        let targets = authorized.plan.targets();
        let mut intents = vec![self.record_targets_in(begun, targets).await?];
        self.write_applyset().await?;
        self.ctx.states.begin_apply(&self.name);
        let mut done = ApplyResults::default();
        let work = (&mut done, &mut intents);
        let applied = self
            .apply_phases(request, items, mode, &mut authorized, work)
            .await;
        let mut recorded = Ok(());
        for intents in &intents {
            recorded = recorded.and(self.record_done(&done, intents).await);
        }
        if items.iter().any(PreparedObject::defines_kinds) {
            self.ctx.apis.forget_custom().await;
        }
        let awaited = match recorded.and(applied) {
            Ok(None) => {
                self.warnings.merge(done.warnings);
                return Ok(ApplyOutcome::Complete(done.applied));
            }
            Ok(Some(awaited)) => Ok(awaited),
            Err(error) => Err(error),
        };
        self.show_applied(request.generated, items, &done);
        let key = self.content_key(request);
        let states = &self.ctx.states;
        let seen = self.ctx.watches.observed_objects(&self.name);
        // A replaced object does not exist until it is created again, so its former state is
        // unknown.
        done.uncertain.append(&mut done.replaced);
        states.record_interrupted(&self.name, &key, done.applied, &done.uncertain, &seen);
        states.wait_for_phase(&self.name, awaited?);
        self.warnings.merge(done.warnings);
        Ok(ApplyOutcome::WaitsForPhase)
    }

    /// Applies the objects phase by phase. Returns the phase that the installation waits for, or
    /// `None` if all objects are applied.
    async fn apply_phases<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        mode: ApplyMode,
        authorized: &mut AuthorizedInstall<'a, 'i>,
        (done, intents): (&mut ApplyResults, &mut Vec<Intents>),
    ) -> Result<Option<AwaitedPhase>, ReconcileError> {
        let install = self.install(request, request.reason);
        let (mut is_watched, is_first) = (mode.is_watched, mode.is_first);
        let mut applied_phase = None;
        let mut remaining = items;
        loop {
            let size = rounds::round(remaining.iter().map(|item| item.phase));
            let (now, later) = remaining.split_at(size);
            let now: Vec<&PreparedObject> = now.iter().collect();
            let phase = now.first().map(|item| item.phase);
            let awaited = applied_phase
                .filter(|applied| mode.is_gated && phase != Some(*applied))
                .map(|applied| AwaitedPhase::new(applied, items.iter().map(|item| item.phase)));
            let mut applies = None;
            let mut round = ObservedRound {
                phase,
                is_gated: awaited.is_some(),
                is_watched,
                ..ObservedRound::default()
            };
            loop {
                round.is_authorization_old = !authorized.is_recent();
                let Some(step) = round.steps().first().copied() else {
                    break;
                };
                match step {
                    RoundStep::CheckReady => {
                        if let Some(awaited) = awaited
                            && !self.is_phase_ready(request, items, awaited).await
                        {
                            return Ok(Some(awaited));
                        }
                    }
                    RoundStep::WatchAll => {
                        self.watch(request, items, true).await?;
                        is_watched = true;
                    }
                    RoundStep::CheckPreconditions => self.check_preconditions(request).await?,
                    RoundStep::CheckApproval => self.approve(request, is_first).await?,
                    RoundStep::Authorize => {
                        *authorized =
                            Box::pin(self.authorize_remaining(request, remaining, is_first))
                                .await?;
                        intents.push(self.record_targets(authorized.plan.targets()).await?);
                    }
                    RoundStep::Replace => {
                        // If a deletion fails, it is unknown whether the object still exists.
                        let replaced: Vec<String> = now
                            .iter()
                            .map(|item| &item.key)
                            .filter(|key| authorized.replacements.contains(key))
                            .cloned()
                            .collect();
                        done.uncertain.extend(replaced.iter().cloned());
                        intents.extend(
                            self.delete_replaced_objects(request, authorized, &now)
                                .await?,
                        );
                        done.record_replaced(replaced);
                    }
                    RoundStep::DryRun => {
                        let tried = authorized
                            .check
                            .check_round(&now, &mut authorized.plan)
                            .await?;
                        applies = Some(tried);
                    }
                    RoundStep::CheckNamespaces => {
                        self.check_before_applies(&now, &mut authorized.namespaces)
                            .await?;
                    }
                    RoundStep::Apply => {
                        let applies = applies.take().unwrap_or_default();
                        let former = self.former_applies(&now);
                        let outcome = install
                            .apply_round(&authorized.check, applies, &former, done)
                            .await;
                        self.record_applied(done).await?;
                        outcome?;
                    }
                }
                round.done.insert(step);
            }
            if now.is_empty() {
                return Ok(None);
            }
            applied_phase = phase;
            remaining = later;
        }
    }

    /// Repeats the permission and namespace checks for the remaining `items`.
    async fn authorize_remaining<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        is_first: bool,
    ) -> Result<AuthorizedInstall<'a, 'i>, ReconcileError> {
        let authorized = self.authorize_install(request, items, is_first).await?;
        let all: Vec<&PreparedObject> = items.iter().collect();
        self.check_namespaces(
            request,
            &all,
            (ObjectAction::Install, &authorized.namespaces),
        )
        .await?;
        Ok(authorized)
    }

    /// Fails if the BundleDeployment or its class has changed since the reconcile began. Also fails
    /// if a SignaturePolicy that matches the content has changed since the content was verified.
    pub(in crate::reconcile) async fn check_preconditions(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let failed =
            |error| ReconcileError::api("read the BundleDeployment again", request.reason, &error);
        let now = self.ctx.get(&self.ctx.deployments, &self.name).await;
        let now = now.map_err(failed)?;
        let class = self.ctx.class(&self.class.name).await.map_err(failed)?;
        let class = match &class {
            ClassLookup::Managed(class) => Some(&**class),
            _ => None,
        };
        let begun = preconditions(self.object, Some(self.class));
        let now = now.as_ref().map(|now| preconditions(now, class));
        let policies = self.applied_policies.as_ref();
        if !begun.are_unchanged(now.as_ref()) {
            return Err(ChangedInput::SpecOrClass.error(request.reason));
        }
        if policies.is_some_and(|policies| !policies.are_current(self.ctx)) {
            return Err(ChangedInput::Policy.error(request.reason));
        }
        Ok(())
    }
}

/// An input of the installation that has changed since the reconcile began.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) enum ChangedInput {
    SpecOrClass,
    Policy,
}

impl ChangedInput {
    pub(in crate::reconcile) fn error(self, reason: &'static str) -> ReconcileError {
        let message = match self {
            Self::SpecOrClass => {
                "spec or class changed during the installation: the installation starts again with the new values"
            }
            Self::Policy => {
                "a SignaturePolicy for the content changed during the installation: the content is verified again"
            }
        };
        let code = codes::install::CHANGED_MEANWHILE;
        ReconcileError::new(code, reason, message, RetryPolicy::Soon)
    }
}

fn preconditions<'a>(deployment: &'a DynamicObject, class: Option<&'a Class>) -> Preconditions<'a> {
    let metadata = &deployment.metadata;
    Preconditions {
        uid: metadata.uid.as_deref(),
        generation: metadata.generation,
        is_deleted: metadata.deletion_timestamp.is_some(),
        class,
    }
}
