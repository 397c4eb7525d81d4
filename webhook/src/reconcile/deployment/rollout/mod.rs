//! Rollout of new content: observes the health of the objects until the deadline, and records the
//! result in the inventory. `bundle_core::plan::rollout` decides the steps and the result.

mod replacement;

use std::collections::BTreeMap;
use std::time::Duration;

use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::inventory::InstallationRecord;
use bundle_core::plan::revisions;
use bundle_core::plan::rollout::{
    self, ContentRequest, ContentState, HealthyContent, ObservedRollout, RolloutContent,
    RolloutRecord, RolloutReport, RolloutSpec, RolloutState, RolloutStep,
};
use bundle_core::plan::summary::Coverage;
use jiff::Timestamp;

use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::ReconcileError;

/// Maximum number of objects in the recorded cause of a failed rollout.
const MAX_CAUSES: usize = 5;

impl DeploymentReconcile<'_> {
    pub(super) fn rollout_record(&self) -> RolloutRecord {
        let record = self.inventory.record.as_ref();
        record.map_or_else(RolloutRecord::default, |record| record.rollout.clone())
    }

    /// Returns the generation of the BundleDeployment.
    pub(super) fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    /// Returns generation and digest of the spec as its requesters wrote it.
    fn rollout_spec(&self) -> RolloutSpec<'_> {
        RolloutSpec {
            generation: self.generation(),
            digest: self.requested.spec.digest.as_str(),
        }
    }

    /// Assigns the recorded rollout to the current generation of the spec. Called before the record
    /// is used. If the new generation has the same spec digest, for example after a write of
    /// `spec.paused`, the rollout and its result stay recorded.
    pub(super) async fn assign_rollout(&mut self) -> Result<(), ReconcileError> {
        let assigned = (self.inventory).with_assigned_rollout(self.rollout_spec(), now());
        match assigned {
            Some(inventory) => self.save_inventory(inventory).await,
            None => Ok(()),
        }
    }

    /// Returns the former content if an automatic rollback installs it instead of the content of
    /// the spec.
    pub(super) fn replacement(&self) -> Option<HealthyContent> {
        let record = self.rollout_record();
        record.replacement(self.generation()).cloned()
    }

    /// Returns true if the last healthy content has this digest.
    pub(super) fn was_healthy(&self, digest: &str) -> bool {
        let healthy = self.rollout_record().healthy;
        healthy.is_some_and(|healthy| healthy.content.digest == digest)
    }

    /// Returns two Bundle names from the record: the Bundle of the current spec, and the Bundle
    /// that an automatic rollback would install. A name is `None` if the record does not contain
    /// it.
    pub(super) fn rollout_bundles(&self) -> (Option<String>, Option<String>) {
        let record = self.rollout_record();
        let requested = record.of_generation(self.generation());
        (
            requested.map(|attempt| attempt.content.bundle.clone()),
            record
                .healthy
                .filter(|_| self.spec.rollout.roll_back)
                .map(|healthy| healthy.content.bundle),
        )
    }

    fn rollout_content(&self, request: &InstallRequest<'_>) -> RolloutContent {
        RolloutContent::new(&request.generated.name, request.digest(), self.config())
    }

    /// Stores the content that this reconcile installs or maintains in `self.requested`.
    pub(super) fn note_content(&mut self, request: &InstallRequest<'_>) {
        let generated = request.generated;
        let uid = generated.object.metadata.uid.clone().unwrap_or_default();
        let content = self.rollout_content(request);
        self.requested.content = generated.content.is_some().then_some((content, uid));
    }

    /// Records in `record` that the rollout begins. Called before the first object is applied.
    pub(in crate::reconcile) fn note_begin(
        &self,
        record: &mut InstallationRecord,
        request: &InstallRequest<'_>,
    ) {
        let content = self.rollout_content(request);
        record.rollout.begin(self.rollout_spec(), &content, now());
    }

    /// Records in `record` that all objects are applied.
    pub(in crate::reconcile) fn note_complete(
        &self,
        record: &mut InstallationRecord,
        request: &InstallRequest<'_>,
    ) {
        let content = self.rollout_content(request);
        let spec = self.rollout_spec();
        record.rollout.complete(spec, &content, now());
    }

    /// Executes the next step of the rollout. `result` is the result of reconciling the content of
    /// the spec: the delay of the next reconcile, or an error. Returns `result` with the delay that
    /// the step requires.
    pub(super) async fn continue_rollout(
        &mut self,
        result: Result<Option<Duration>, ReconcileError>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some((content, bundle_uid)) = self.requested.content.clone() else {
            return result;
        };
        let mut unhealthy = self.unhealthy();
        let state = self.content_state(&result, &unhealthy);
        let record = self.rollout_record();
        let now = now();
        let request = ContentRequest::of(&self.object.data["spec"]);
        let settings = &self.spec.rollout;
        let step = ObservedRollout {
            record: &record,
            generation: self.generation(),
            class: &request.class,
            requesters: &self.parts,
            content: &content,
            state,
            is_paused: self.spec.paused,
            rolls_back: settings.roll_back,
            deadline: settings.deadline,
            now,
        }
        .step();
        if let Some((title, unready)) = self.awaited_phase() {
            unhealthy = BTreeMap::from([(title, unready)]);
        } else if let (ContentState::Failed, Err(error)) = (state, &result) {
            unhealthy = BTreeMap::from([("installation".to_owned(), error.message.clone())]);
        }
        let deadline = settings.deadline;
        let requesters = self.parts.clone();
        let healthy =
            || HealthyContent::new(content.clone(), &bundle_uid, request.clone(), &requesters);
        self.record_step(&step, now, &cause(&unhealthy), healthy)
            .await?;
        self.report_rollout(&unhealthy);
        match step {
            RolloutStep::Wait(left) => result.map(|wait| Some(sooner(wait, left))),
            RolloutStep::Restart => result.map(|wait| Some(sooner(wait, deadline))),
            // The next reconcile installs the former content.
            RolloutStep::RollBack => Ok(Some(Duration::ZERO)),
            RolloutStep::Keep | RolloutStep::RecordHealthy | RolloutStep::ReportFailure(_) => {
                result
            }
        }
    }

    /// Returns the objects that are missing or unhealthy, each with the reason.
    fn unhealthy(&self) -> BTreeMap<String, String> {
        let states = &self.ctx.states;
        let missing = states.missing(&self.name).into_iter();
        let mut unhealthy: BTreeMap<String, String> =
            missing.map(|key| (key, "is missing".to_owned())).collect();
        unhealthy.extend(states.unhealthy(&self.name));
        unhealthy.extend(self.failed_jobs());
        unhealthy
    }

    /// Returns the title of the phase that the installation waits for, and the unready objects of
    /// this phase. Returns `None` if the installation waits for no phase, or if all objects of the
    /// phase are ready.
    fn awaited_phase(&self) -> Option<(String, String)> {
        let awaited = self.requested.awaited.as_ref()?;
        Some((awaited.title.clone(), awaited.unready.clone()?))
    }

    fn content_state(
        &self,
        result: &Result<Option<Duration>, ReconcileError>,
        unhealthy: &BTreeMap<String, String>,
    ) -> ContentState {
        let states = &self.ctx.states;
        let is_blind = self.ctx.watches.watch_failure(&self.name).is_some();
        if !self.facts.is_in_place {
            return match result {
                _ if self.awaited_phase().is_some() => {
                    if is_blind || states.has_touched(&self.name) {
                        ContentState::Unknown
                    } else {
                        ContentState::Unhealthy
                    }
                }
                Err(error) if !error.is_unknown() => ContentState::Failed,
                _ => ContentState::Unknown,
            };
        }
        let coverage = states.coverage(&self.name, self.installed_content().is_some());
        if coverage != Coverage::All || is_blind || states.has_touched(&self.name) {
            ContentState::Unknown
        } else if unhealthy.is_empty() {
            ContentState::Healthy
        } else {
            ContentState::Unhealthy
        }
    }

    async fn record_step(
        &mut self,
        step: &RolloutStep,
        now: i64,
        cause: &str,
        healthy: impl FnOnce() -> HealthyContent,
    ) -> Result<(), ReconcileError> {
        let Some(mut record) = self.inventory.record.clone() else {
            return Ok(());
        };
        let generation = self.generation();
        record
            .rollout
            .record(step, (self.rollout_spec(), now), cause, healthy);
        if *step == RolloutStep::RollBack
            && let Some(attempt) = record.rollout.of_generation(generation)
            && let former = record.rollout.healthy.as_ref()
            && former.is_none_or(|former| former.content.bundle != attempt.content.bundle)
        {
            let failed = attempt.content.bundle.clone();
            revisions::mark_failed(&mut record.revisions, &failed);
        }
        self.save_record(record).await?;
        let code = match step {
            RolloutStep::ReportFailure(None) => codes::install::DEADLINE_EXCEEDED,
            RolloutStep::ReportFailure(Some(_)) => codes::install::RETURN_REFUSED,
            RolloutStep::RollBack => codes::install::ROLLED_BACK,
            _ => return Ok(()),
        };
        self.warn_of_rollout(code);
        Ok(())
    }

    /// Logs the recorded result of the rollout, and stores an Event that is emitted at the end of
    /// the reconcile.
    fn warn_of_rollout(&mut self, code: Code) {
        let Some(report) = self.recorded_report() else {
            return;
        };
        let message = report.message().to_owned();
        tracing::warn!(deployment = self.name, code = code.id, message, "rollout");
        self.requested.event = Some((code, message));
    }

    fn recorded_report(&self) -> Option<RolloutReport> {
        let record = self.rollout_record();
        let attempt = record.of_generation(self.generation())?;
        let deadline = self.spec.rollout.deadline;
        RolloutReport::of(attempt, record.healthy.as_ref(), deadline)
    }

    /// Sets the fact about the rollout for the conditions.
    fn report_rollout(&mut self, unhealthy: &BTreeMap<String, String>) {
        if self.spec.paused {
            return;
        }
        let record = self.rollout_record();
        let attempt = record.of_generation(self.generation());
        let waits = attempt.is_some_and(|attempt| attempt.state == RolloutState::Waiting);
        let applies = attempt.is_some_and(|attempt| attempt.state == RolloutState::Applying);
        self.facts.rollout = if let (true, Some((title, unready))) = (applies, self.awaited_phase())
        {
            Some(RolloutReport::Waiting(format!("{title}: {unready}")))
        } else if waits {
            let keys = self.ctx.states.keys(&self.name);
            let progress = rollout::progress(keys.iter().map(String::as_str), unhealthy);
            progress.map(RolloutReport::Waiting)
        } else {
            self.recorded_report()
        };
    }
}

fn cause(unhealthy: &BTreeMap<String, String>) -> String {
    let list: Vec<String> = unhealthy
        .iter()
        .map(|(key, why)| format!("{key}: {why}"))
        .collect();
    some_of(&list, MAX_CAUSES)
}

fn sooner(wait: Option<Duration>, left: Duration) -> Duration {
    wait.map_or(left, |wait| wait.min(left))
}

/// Returns the time in milliseconds since 1970.
fn now() -> i64 {
    Timestamp::now().as_millisecond()
}
