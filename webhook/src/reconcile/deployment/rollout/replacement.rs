//! The automatic rollback: installs and maintains the former content instead of the content of the
//! spec. All checks of an installation also apply to the former content. The permissions of the
//! current requesters of the spec are checked. The requesters of the former content must be among
//! these requesters.

use std::time::Duration;

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::rollout::{
    HealthyContent, RollbackObstacle, RolloutReport, RolloutState, is_refusal,
};
use bundle_core::plan::status::{BundleFact, DeploymentFacts};
use bundle_core::review::CheckedDeploymentSpec;
use kube::api::DynamicObject;

use crate::reconcile::bundle::generated::{self, GeneratedBundle};
use crate::reconcile::deployment_state::DeploymentReconcile;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// Reason why the former content was not installed.
enum ReturnFailure {
    /// The rollback cannot succeed and is not retried.
    Obstacle(RollbackObstacle),
    /// The rollback is retried.
    Temporary(ReconcileError),
}

impl DeploymentReconcile<'_> {
    /// Installs and maintains the former content. If the former content cannot be installed, the
    /// content of the spec is maintained instead. Returns the delay of the next reconcile.
    pub(in crate::reconcile::deployment) async fn run_replacement(
        &mut self,
        former: &HealthyContent,
    ) -> Result<Option<Duration>, ReconcileError> {
        let was_returned = self.is_returned();
        let failure = match self.select_replacement(former).await {
            Ok(()) => {
                let result = Box::pin(self.run_content()).await;
                let is_begun = was_returned || self.is_returned() || self.has_begun();
                match result {
                    Err(error) if !is_begun => failure(error),
                    result => return self.report_return(was_returned, result),
                }
            }
            Err(failure) => failure,
        };
        if was_returned {
            // The rollback was complete before, so the former content stays installed and
            // unchanged.
            return match failure {
                ReturnFailure::Temporary(error) => Err(error),
                ReturnFailure::Obstacle(obstacle) => Err(lost_content_error(&obstacle)),
            };
        }
        self.select_requested();
        if let ReturnFailure::Obstacle(obstacle) = &failure {
            self.refuse_return(obstacle).await?;
        }
        let kept = Box::pin(self.run_content()).await;
        match failure {
            ReturnFailure::Obstacle(_) => self.continue_rollout(kept).await,
            ReturnFailure::Temporary(error) => {
                self.facts.rollout = self.recorded_report();
                Err(error)
            }
        }
    }

    fn is_returned(&self) -> bool {
        let record = self.rollout_record();
        let attempt = record.of_generation(self.generation());
        attempt.is_some_and(|attempt| matches!(attempt.state, RolloutState::RolledBack { .. }))
    }

    /// Returns true if an object of the former content may have been applied. In this case the
    /// inventory records the digest of the spec that [`Self::select_replacement`] stored in
    /// `self.spec`.
    fn has_begun(&self) -> bool {
        self.inventory.installation.spec_digest() == Some(self.spec.digest.as_str())
    }

    /// Sets `self.object` and `self.spec` to the spec with the template and the configuration of
    /// the former content. Marks the reconcile as a rollback.
    async fn select_replacement(&mut self, former: &HealthyContent) -> Result<(), ReturnFailure> {
        let name = &former.content.bundle;
        let is_lost = || ReturnFailure::Obstacle(RollbackObstacle::BundleLost(name.clone()));
        let Some(request) = &former.request else {
            return Err(ReturnFailure::Obstacle(RollbackObstacle::NotRecorded));
        };
        // The requesters can change without a write of the spec, because of the annotation
        // `core.rukpak.io/admit`.
        if let Some(obstacle) = former.requester_obstacle(&self.parts) {
            return Err(ReturnFailure::Obstacle(obstacle));
        }
        let mut object: DynamicObject = self.requested.object.clone();
        object.data["spec"] = request.applied_to(&object.data["spec"]);
        let spec = CheckedDeploymentSpec::parse(&object.data["spec"]).map_err(|findings| {
            let messages: Vec<String> = findings.errors().map(ToString::to_string).collect();
            ReturnFailure::Obstacle(RollbackObstacle::Refused(messages.join("; ")))
        })?;
        // A deleted Bundle is not created again here, because its content could have changed.
        let bundle = self.ctx.get(&self.ctx.bundles, name).await;
        let bundle = bundle.map_err(|error| {
            let reason = self.install_reason();
            ReturnFailure::Temporary(ReconcileError::api("read the Bundle", reason, &error))
        })?;
        let Some(bundle) = bundle else {
            return Err(is_lost());
        };
        let hash = generated::generated_hash(self.ctx, self.object, &bundle);
        let bundle = GeneratedBundle::from_object(self.ctx, bundle);
        let digest = bundle
            .content
            .as_ref()
            .map(|content| content.digest.as_str());
        if hash.as_ref() != Some(&spec.template.hash)
            || digest != Some(former.content.digest.as_str())
        {
            return Err(is_lost());
        }
        self.object = self.requested.replacement.get_or_init(|| object);
        self.spec = spec;
        self.is_rollback = true;
        if let Some(author) = former.requesters.first() {
            self.requester = self.present_requester(author);
        }
        Ok(())
    }

    /// Resets `self.object` and `self.spec` to the spec as its requesters wrote it.
    fn select_requested(&mut self) {
        self.object = self.requested.object;
        self.spec = self.requested.spec.clone();
        self.is_rollback = false;
        self.requester = self.parts.template.as_ref().clone();
        self.facts = DeploymentFacts::default();
        self.requested.content = None;
        self.requested.awaited = None;
        self.package_rules = None;
        self.applied_policies = None;
        self.created_namespace = None;
    }

    /// Records the obstacle to the rollback, and stores an Event. Does nothing while the
    /// BundleDeployment is paused.
    async fn refuse_return(&mut self, obstacle: &RollbackObstacle) -> Result<(), ReconcileError> {
        if self.spec.paused {
            return Ok(());
        }
        let Some(mut record) = self.inventory.record.clone() else {
            return Ok(());
        };
        record.rollout.refuse(obstacle);
        self.save_record(record).await?;
        self.warn_of_rollout(codes::install::RETURN_REFUSED);
        Ok(())
    }

    /// Sets the facts about the rollback, and returns `result`. When the rollback becomes complete,
    /// also stores an Event.
    fn report_return(
        &mut self,
        was_returned: bool,
        result: Result<Option<Duration>, ReconcileError>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let report = self.recorded_report();
        if let (Some(RolloutReport::RolledBack(_)), false) = (&report, was_returned) {
            self.warn_of_rollout(codes::install::ROLLED_BACK);
        }
        let (requested, _) = self.rollout_bundles();
        if let (Some(_), Some(bundle)) = (&report, requested) {
            // The Bundle of the requested template must be unpacked, because its rollout failed
            // after an installation.
            self.facts.bundle = Some(BundleFact::Unpacked(bundle));
        }
        self.facts.rollout = report;
        result
    }
}

fn failure(error: ReconcileError) -> ReturnFailure {
    if is_refusal(error.code, error.retry) {
        let message = format!("{} [{}]", error.message, error.code.id);
        ReturnFailure::Obstacle(RollbackObstacle::Refused(message))
    } else {
        ReturnFailure::Temporary(error)
    }
}

/// Returns the error for installed former content whose Bundle can no longer be used.
fn lost_content_error(obstacle: &RollbackObstacle) -> ReconcileError {
    ReconcileError::new(
        codes::install::CONTENT_CHANGED,
        reason::ROLLED_BACK,
        format!("{obstacle}: deploy other content, or this content again by its digest"),
        RetryPolicy::Slowly,
    )
}
