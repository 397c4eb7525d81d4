//! The facts for the conditions of a BundleDeployment, collected at the end of a reconcile.
//! `bundle_core::plan::status` computes the conditions.

use std::time::Duration;

use bundle_api::deployment::status::DriftedObject;
use bundle_api::names;
use bundle_core::plan::status::{BundleFact, Failure, ObjectFacts, PermissionFact};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::reconcile::bundle::generated::GeneratedBundle;
use crate::reconcile::deployment_state::DeploymentReconcile;
use crate::reconcile::error::{MAX_LISTED, ReconcileError, RetryPolicy};

impl DeploymentReconcile<'_> {
    /// Collects the facts for the conditions, and sets the list of drifted objects in the status.
    pub(in crate::reconcile) fn collect_facts(&mut self, error: Option<&ReconcileError>) {
        let states = &self.ctx.states;
        let drifted = states.drifted(&self.name);
        self.status.drift = drifted
            .iter()
            .take(MAX_LISTED)
            .map(|(key, since)| DriftedObject {
                object: key.clone(),
                since: jiff::Timestamp::from_second(since.as_second())
                    .ok()
                    .map(Time),
            })
            .collect();
        let mut unhealthy = states.unhealthy(&self.name);
        unhealthy.extend(self.failed_jobs());
        self.facts.objects = ObjectFacts {
            coverage: states.coverage(&self.name, self.installed_content().is_some()),
            drifted: drifted.into_keys().collect(),
            missing: states.missing(&self.name),
            contested: states.contested(&self.name),
            unhealthy,
            blind: self.ctx.watches.watch_failure(&self.name),
        };
        self.facts.is_paused = self.spec.paused;
        self.facts.corrects_drift = self.spec.correct_drift;
        self.facts
            .active_bundle
            .clone_from(&self.status.active_bundle);
        self.facts.failure = error.map(|error| Failure {
            code: error.code,
            reason: error.reason,
            message: error.message.clone(),
            is_unknown: error.is_unknown(),
            is_retried: error.retry != RetryPolicy::OnChange,
        });
    }

    /// Stores missing permissions of the requesters as a fact for the conditions, if they are the
    /// cause of `error`.
    pub(in crate::reconcile) fn note_rights(&mut self, error: &ReconcileError) {
        if let Some(rights) = PermissionFact::of_failure(error.code, &error.message) {
            self.facts.rights = Some(rights);
        }
    }

    /// Returns the delay of the next reconcile: the shorter of `wait` and the time until the next
    /// restore of an object.
    pub(in crate::reconcile) fn with_next_restore(
        &self,
        wait: Option<Duration>,
    ) -> Option<Duration> {
        let restores = self.restores_tried && self.spec.correct_drift && !self.spec.paused;
        let next = restores
            .then(|| self.ctx.states.next_restore(&self.name))
            .flatten();
        match (wait, next) {
            (Some(wait), Some(next)) => Some(wait.min(next)),
            (wait, next) => wait.or(next),
        }
    }
}

/// Returns the fact about the generated Bundle for the conditions.
pub(super) fn bundle_fact(generated: &GeneratedBundle) -> BundleFact {
    let name = generated.name.clone();
    match generated.status.phase.as_deref() {
        _ if generated.content.is_some() => BundleFact::Unpacked(name),
        Some(names::PHASE_FAILING) => BundleFact::Failing {
            name,
            message: generated.message().to_owned(),
        },
        Some(names::PHASE_UNPACKING) => BundleFact::Unpacking(name),
        _ => BundleFact::Pending(name),
    }
}
