//! The end of a BundleDeployment reconcile: conditions, one status write, and Events.
//! `bundle_core::plan::status` decides the conditions.

use std::collections::BTreeSet;
use std::time::Duration;

use bundle_api::deployment::status::BundleDeploymentStatus;
use bundle_api::names::{condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::text::{MessageList, some_of, visible};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use crate::reconcile::ApiFailure;
use crate::reconcile::context::failures::Work;
use crate::reconcile::deployment_state::DeploymentReconcile;
use crate::reconcile::error::{MAX_LISTED, ReconcileError};
use crate::reconcile::install::permission_cycle;
use crate::reconcile::status::writer;
use crate::telemetry::spans;

impl DeploymentReconcile<'_> {
    /// Computes the conditions from the facts, writes the status once, and emits Events. Returns
    /// the action with the delay of the next reconcile.
    pub(super) async fn finish(
        mut self,
        result: Result<Option<Duration>, ReconcileError>,
    ) -> Result<Action, ApiFailure> {
        let (wait, error) = match result {
            Ok(wait) => {
                spans::outcome("done");
                self.ctx.failures.reset(Work::Install, self.object);
                (wait, None)
            }
            Err(error) => {
                spans::code(error.code.id);
                spans::outcome("failed");
                self.note_rights(&error);
                let failures = &self.ctx.failures;
                let wait = failures.record(Work::Install, self.object, error.retry);
                (wait, Some(error))
            }
        };
        let wait = self.with_next_restore(wait);
        let check = self.permission_check.filter(|_| error.is_none());
        let terms = check.and_then(|check| self.group_terms(check, wait));
        self.warnings.extend(self.scaled_objects.warnings());
        self.collect_facts(error.as_ref());
        let Self {
            object,
            ctx,
            mut conditions,
            facts,
            old,
            mut status,
            warnings,
            restored,
            has_installed,
            requested,
            ..
        } = self;
        let generation = object.metadata.generation.unwrap_or_default();
        let changes = facts.conditions(conditions.list(), generation);
        conditions.apply_all(&changes);
        status.conditions = conditions.into_api();
        if has_installed || !warnings.is_empty() || error.is_none() && status.warnings.is_empty() {
            status.warnings = merged(&status.warnings, &warnings, has_installed);
        }
        let written = writer::write(&ctx.own, &ctx.deployments, object, &old, &status).await?;
        let events = &ctx.deployment_events;
        match &error {
            Some(error) if written && !is_reported(&old, error) => {
                events.warn(object, error.code, &error.message).await;
            }
            None if has_installed => {
                let bundle = status.active_bundle.as_deref().unwrap_or_default();
                let note = format!("Instantiated bundle {bundle} successfully");
                events
                    .note(object, reason::INSTALLATION_SUCCEEDED, &note)
                    .await;
            }
            _ => {}
        }
        if let Some((code, note)) = &requested.event {
            events.warn(object, *code, note).await;
        }
        if !restored.is_empty() {
            let note = some_of(&restored, MAX_LISTED);
            tracing::info!(deployment = object.name_any(), objects = note, "restored");
            events.restored(object, &restored).await;
        }
        let next = |check| permission_cycle::next_reconcile(ctx, object, (check, terms), wait);
        let wait = check.map(next).or(wait);
        Ok(wait.map_or_else(Action::await_change, Action::requeue))
    }
}

/// Returns true if `error` reports withdrawn permissions, and the old conditions already contain
/// the message of this error. In this case no Event is emitted.
fn is_reported(old: &BundleDeploymentStatus, error: &ReconcileError) -> bool {
    error.code == codes::install::RIGHTS_WITHDRAWN
        && old.conditions.iter().any(|condition| {
            condition.type_ == condition::AUTHORIZED
                && condition.reason == reason::RIGHTS_WITHDRAWN
                && condition.message == visible(&error.message)
        })
}

/// Returns the warnings for the status, with hidden characters escaped. If `has_installed` is
/// false, the result also contains the old warnings.
fn merged(old: &[String], new: &MessageList, has_installed: bool) -> Vec<String> {
    let mut all: BTreeSet<String> = new.messages().map(visible).collect();
    if !has_installed {
        all.extend(old.iter().cloned());
    }
    all.into_iter().take(MAX_LISTED).collect()
}
