//! Execution of the steps of a Bundle reconcile. `bundle_core::plan::bundle` orders the steps.

mod source_check;

use std::sync::Arc;
use std::time::Duration;

use bundle_api::bundle::BundleStatus;
use bundle_api::names::reason;
use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::plan::bundle::{
    BundleFailure, BundleOutcome, BundleStep, NextUnpack, ObservedBundle, Phase, SealedRecord,
    VerifiedFailure,
};
use bundle_core::plan::conditions::ConditionStatus;
use bundle_core::reference::Digest;
use bundle_core::review::{CheckedBundleSpec, Class, Kind, Requester, SealedContent, Source};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use self::source_check::SourceCheck;
use crate::reconcile::ApiFailure;
use crate::reconcile::background_tasks::{TaskOwner, TaskState};
use crate::reconcile::bundle::status;
use crate::reconcile::bundle::unpack::Unpack;
use crate::reconcile::content::unpacked::{UnpackError, Unpacked};
use crate::reconcile::context::Context;
use crate::reconcile::context::failed_unpacks::UnpackInputs;
use crate::reconcile::context::failures::Work;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::seal;
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::{status_of, writer};
use crate::retry::{self, delays};
use crate::telemetry::spans;

/// One reconcile of a Bundle with a class whose provisioner bundle-webhook implements.
pub(in crate::reconcile) struct BundleReconcile<'a> {
    object: &'a DynamicObject,
    ctx: &'a Arc<Context>,
    class: &'a Class,
    /// The sealed record of the content that was unpacked in an earlier reconcile.
    sealed: Option<SealedContent>,
    /// The admitted spec and its requester. `None` before the step `CheckAdmission`.
    checked: Option<(CheckedBundleSpec, Requester)>,
    /// The hash of the inputs of an attempt to unpack the content. `None` if no attempt has ended
    /// in this reconcile.
    attempted: Option<u64>,
    old: BundleStatus,
    status: BundleStatus,
}

/// State of the content after the last step.
enum ContentState {
    /// The content is being unpacked. The end of this task starts a reconcile.
    Pending,
    /// The unpacking has not started, because the requester has too many running tasks.
    Postponed,
    /// The last attempt failed. The next attempt starts after this delay, or after a change of the
    /// Bundle. `None` means that only a change starts the next attempt.
    Delayed(Option<Duration>),
    Unpacked(Box<Unpacked>),
    /// The content was unpacked before. Contains its digest and the result of the source check.
    Sealed(Digest, SourceCheck),
}

impl<'a> BundleReconcile<'a> {
    /// Creates the reconcile from the stored status of the object. The field `content` is computed
    /// from the sealed record, because other clients can write the status.
    pub(in crate::reconcile) fn new(
        object: &'a DynamicObject,
        ctx: &'a Arc<Context>,
        class: &'a Class,
    ) -> Self {
        let old: BundleStatus = status_of(object);
        let sealed = seal::content(ctx, object);
        let status = BundleStatus {
            observed_generation: Some(object.metadata.generation.unwrap_or_default()),
            content_url: sealed.as_ref().map(|_| status::content_url(ctx, object)),
            content: sealed
                .as_ref()
                .map(|sealed| status::content(ctx, object, sealed, old.content.as_ref())),
            ..old.clone()
        };
        Self {
            object,
            ctx,
            class,
            sealed,
            checked: None,
            attempted: None,
            old,
            status,
        }
    }

    /// Executes the steps of the plan, and writes the status once.
    pub(in crate::reconcile) async fn run(mut self) -> Result<Action, ApiFailure> {
        let result = self.execute_steps().await;
        match &result {
            Ok(content @ (ContentState::Pending | ContentState::Postponed)) => {
                let outcome = BundleOutcome::Pending {
                    is_retry: self.has_failed(),
                };
                let wait =
                    matches!(content, ContentState::Postponed).then_some(delays::POSTPONED_FETCH);
                self.finish(&outcome, wait, None).await
            }
            // The status already reports the failure.
            Ok(ContentState::Delayed(wait)) => {
                Ok(wait.map_or_else(Action::await_change, Action::requeue))
            }
            Ok(ContentState::Unpacked(unpacked)) => {
                let outcome = BundleOutcome::Unpacked(unpacked.content());
                self.finish(&outcome, None, None).await
            }
            Ok(ContentState::Sealed(digest, check)) => {
                let outcome = BundleOutcome::Sealed(digest, check.fact());
                let wait =
                    matches!(check, SourceCheck::Postponed).then_some(delays::POSTPONED_FETCH);
                self.finish(&outcome, wait, None).await
            }
            Err(failed) if failed.error.code == codes::install::NOT_UPLOADED => {
                self.finish(&BundleOutcome::NotUploaded, None, None).await
            }
            Err(failed) => {
                let verified = failed.verified.as_ref();
                let outcome = BundleOutcome::Failed(BundleFailure {
                    code: failed.error.code,
                    reason: failed.error.reason,
                    message: &failed.error.message,
                    verified: verified.map(|(state, message)| VerifiedFailure {
                        is_unknown: *state == ConditionStatus::Unknown,
                        message,
                    }),
                    is_unpacked: self.status.content.is_some(),
                });
                self.finish(&outcome, None, Some(&failed.error)).await
            }
        }
    }

    /// Executes steps until no step remains or a step fails. Returns the state of the content.
    async fn execute_steps(&mut self) -> Result<ContentState, UnpackError> {
        let mut observed = ObservedBundle::default();
        let mut content = ContentState::Pending;
        loop {
            let Some(step) = observed.steps().first().copied() else {
                return Ok(content);
            };
            match step {
                BundleStep::CheckAdmission => self.check_admission(&mut observed)?,
                BundleStep::CheckProvisioner => {
                    crate::reconcile::context::check_provisioner(self.class)?;
                }
                BundleStep::ReportContentChanged => return Err(self.content_changed().into()),
                BundleStep::CheckSource => self.check_source()?,
                BundleStep::Unpack => content = self.unpack().await?,
                BundleStep::RestoreStatus => {
                    if let Some((spec, sealed)) = self.spec().zip(self.sealed.as_ref()) {
                        let id = ContentId::sealed(&spec.source, sealed);
                        let digest = sealed.digest.clone();
                        self.ctx.shared.uploads.unpacked(self.uid(), &digest);
                        self.status.resolved_source =
                            Some(status::resolved_source(self.object, &id));
                        content = ContentState::Sealed(digest, SourceCheck::Unchanged);
                    }
                }
                BundleStep::CompareSource => {
                    if let ContentState::Sealed(_, check) = &mut content {
                        *check = self.check_source_content().await;
                    }
                }
                // Only the deletion of a Bundle has these steps. `bundle::controller` executes
                // them.
                BundleStep::RemoveCachedContent | BundleStep::RemoveFinalizer => {}
            }
            observed.done.insert(step);
        }
    }

    fn spec(&self) -> Option<&CheckedBundleSpec> {
        self.checked.as_ref().map(|(spec, _)| spec)
    }

    fn sealed_digest(&self) -> Option<Digest> {
        self.sealed.as_ref().map(|sealed| sealed.digest.clone())
    }

    /// Reads the spec and its requester. Fails if the spec was not admitted.
    fn check_admission(&mut self, observed: &mut ObservedBundle) -> Result<(), ReconcileError> {
        let vouched =
            seal::confirmed_facts(self.ctx, self.object, Kind::Bundle).map_err(|message| {
                ReconcileError::new(
                    codes::review::NOT_ADMITTED,
                    reason::NOT_ADMITTED,
                    message,
                    RetryPolicy::OnChange,
                )
            })?;
        spans::requester(&vouched.parts.template.user);
        let spec = CheckedBundleSpec::parse(&self.object.data["spec"]).map_err(|findings| {
            ReconcileError::findings(reason::UNPACK_FAILED, &findings, RetryPolicy::OnChange)
        })?;
        observed.sealed = Some(match &self.sealed {
            None => SealedRecord::None,
            Some(sealed) if sealed.spec == spec.digest => SealedRecord::SameSpec,
            Some(_) => SealedRecord::OtherSpec,
        });
        observed.is_source_fixed = spec.source.is_fixed();
        self.checked = Some((spec, vouched.parts.template.as_ref().clone()));
        Ok(())
    }

    fn check_source(&self) -> Result<(), ReconcileError> {
        let refused = self
            .spec()
            .and_then(|spec| self.class.source_rejection(&spec.source, "spec.source"));
        refused.map_or(Ok(()), |finding| {
            Err(ReconcileError::findings(
                reason::UNPACK_FAILED,
                &finding.into(),
                RetryPolicy::OnChange,
            ))
        })
    }

    fn content_changed(&self) -> ReconcileError {
        let digest = self.sealed_digest();
        let digest = digest.map_or_else(String::new, |digest| digest.to_string());
        ReconcileError::new(
            codes::install::CONTENT_CHANGED,
            reason::UNPACK_FAILED,
            format!(
                "the spec changed after content {digest} was unpacked, and only that content is accepted under this name: delete the Bundle and create it again"
            ),
            RetryPolicy::OnChange,
        )
    }

    /// Unpacks and seals the content in the background.
    async fn unpack(&mut self) -> Result<ContentState, UnpackError> {
        let Some((spec, requester)) = self.checked.clone() else {
            return Ok(ContentState::Pending);
        };
        let version = spec_version(self.uid(), &spec);
        let owner_version = task_version(&version, &requester);
        let name = self.object.name_any();
        let inputs = self.ctx.failed_unpacks.hash(&UnpackInputs {
            spec: &spec.digest,
            requester: &requester,
            class: self.class,
        });
        if self.has_failed()
            && !self.ctx.unpacking.is_started(&name, &owner_version)
            && let NextUnpack::Later(wait) = self.ctx.failed_unpacks.next(self.object, inputs)
        {
            return Ok(ContentState::Delayed(wait));
        }
        let unpack = Unpack {
            ctx: self.ctx.clone(),
            class: self.class.clone(),
            bundle: self.object.into(),
            version,
            source: spec.source.clone(),
            requester,
        };
        let user = unpack.requester.user.clone();
        let owner = TaskOwner {
            name: &name,
            uid: self.uid(),
            version: &owner_version,
            content: "",
            requester: &user,
        };
        // The future is boxed because it is large: it contains all requests to a registry.
        let unpacking = Box::pin(unpack.run());
        let state = self.ctx.unpacking.run(owner, unpacking).await;
        let unpacked = match state {
            TaskState::Done(unpacked) => {
                self.attempted = Some(inputs);
                unpacked?
            }
            TaskState::Pending => return Ok(ContentState::Pending),
            TaskState::Postponed => return Ok(ContentState::Postponed),
        };
        self.status.resolved_source = Some(status::resolved_source(self.object, &unpacked.id));
        self.status.signed_by.clone_from(&unpacked.signed_by);
        let sealed = SealedContent {
            spec: spec.digest,
            digest: unpacked.id.digest().clone(),
            version: unpacked.content.version.clone(),
            commit: unpacked.id.commit().map(str::to_owned),
        };
        // The content was just read from the source. The status write starts another reconcile,
        // which does not need to read the source again.
        if let Some(key) = self.source_key(&sealed.digest) {
            self.ctx.unchanged_sources.insert(key).await;
        }
        let content = status::content(self.ctx, self.object, &sealed, Some(&unpacked.content));
        self.status.content = Some(content);
        self.status.content_url = Some(status::content_url(self.ctx, self.object));
        Ok(ContentState::Unpacked(Box::new(unpacked)))
    }

    fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns true if the stored status reports a failure for this generation of the Bundle.
    fn has_failed(&self) -> bool {
        self.old.phase.as_deref() == Some(Phase::Failing.as_str())
            && self.old.observed_generation == self.object.metadata.generation
    }

    /// Writes the status of `outcome` once, and emits its Event. Returns the action with the delay
    /// of the next reconcile. `postponed` is this delay if a task has not started.
    async fn finish(
        &self,
        outcome: &BundleOutcome<'_>,
        postponed: Option<Duration>,
        error: Option<&ReconcileError>,
    ) -> Result<Action, ApiFailure> {
        let (object, ctx) = (self.object, self.ctx);
        if outcome.has_succeeded() {
            spans::outcome("done");
            ctx.failures.reset(Work::Unpack, object);
            ctx.failed_unpacks.remove(self.uid());
        }
        let source = self.spec().map(|spec| &spec.source);
        if let Some(error) = error {
            spans::code(error.code.id);
            spans::outcome("failed");
        }
        let wait = match error {
            Some(error) => ctx.failures.record(Work::Unpack, object, error.retry),
            None if postponed.is_some() => postponed.map(retry::jittered),
            None if outcome.compares_source_again(source.is_none_or(Source::is_fixed)) => {
                let interval = ctx.shared.settings.source_check_interval;
                interval.map(retry::jittered)
            }
            None => None,
        };
        if let Some(inputs) = self.attempted.filter(|_| error.is_some()) {
            ctx.failed_unpacks.record(object, inputs, wait);
        }
        let generation = object.metadata.generation.unwrap_or_default();
        let conditions = ConditionSet::new(&self.old.conditions, generation, condition_set::now());
        let status = status::with_plan(&self.status, &outcome.status(), conditions);
        let written = writer::write(&ctx.own, &ctx.bundles, object, &self.old, &status).await?;
        if let Some(error) = error.filter(|_| written) {
            ctx.bundle_events
                .warn(object, error.code, &error.message)
                .await;
        } else if written && outcome.is_event_due(status::is_unpacked(&self.old)) {
            let content = status.content.as_ref();
            let note = content.map_or("", |content| content.digest.as_str());
            ctx.bundle_events
                .note(object, reason::UNPACK_SUCCESSFUL, note)
                .await;
        }
        Ok(wait.map_or_else(Action::await_change, Action::requeue))
    }
}

/// Returns the version of a Bundle that is recorded with attempts to parse its content: the uid,
/// and the digest of the normalized spec. The spec includes the class. The generation is not
/// suitable, because another notation of the same spec also increments the generation.
fn spec_version(uid: &str, spec: &CheckedBundleSpec) -> String {
    format!("{uid} {}", spec.digest)
}

/// Returns the version of a Bundle for its background tasks. The version contains the requester, so
/// a task is cancelled if another user becomes the requester.
fn task_version(spec_version: &str, requester: &Requester) -> String {
    format!("{spec_version} {}", requester.user)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn version(uid: &str, image: &Value, user: &str) -> (String, String) {
        let spec =
            json!({"provisionerClassName": "plain", "source": {"type": "image", "image": image}});
        let spec = CheckedBundleSpec::parse(&spec).unwrap();
        let requester = Requester {
            user: user.to_owned(),
            ..Requester::default()
        };
        let attempts = spec_version(uid, &spec);
        let task = task_version(&attempts, &requester);
        (attempts, task)
    }

    #[test]
    fn another_notation_of_the_spec_is_the_same_version() {
        let plain = json!({"ref": "registry.example.com/web:1"});
        let first = version("u1", &plain, "ana");
        let empty = json!({"ref": "registry.example.com/web:1", "pullSecret": ""});
        assert_eq!(version("u1", &empty, "ana"), first);
        let other = json!({"ref": "registry.example.com/web:2"});
        for (attempts, task) in [version("u2", &plain, "ana"), version("u1", &other, "ana")] {
            assert_ne!(attempts, first.0);
            assert_ne!(task, first.1);
        }
        // For another requester, the task version differs, and the version for parse attempts is
        // equal.
        let (attempts, task) = version("u1", &plain, "ben");
        assert_eq!(attempts, first.0);
        assert_ne!(task, first.1);
    }
}
