//! What the conditions of a BundleDeployment say, from what was found.
//! Not here: finding it (deployment::controller, deployment::steps, drift::keep), or how conditions are kept (status::condition_set).

use std::time::Duration;

use bundle_api::deployment_status::DriftedObject;
use bundle_api::names::{self, condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::State;
use bundle_core::plan::summary::{Correction, Installation, Observed};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::reconcile::bundle::generated::GeneratedBundle;
use crate::reconcile::deployment::controller::{DeploymentReconcile, LISTED};
use crate::reconcile::error::{ReconcileError, RetryPolicy};

impl DeploymentReconcile<'_> {
    pub(in crate::reconcile) fn warn_of_unused(&mut self) {
        let spec = &self.object.data["spec"];
        for (pointer, field) in [
            ("/rollout/deadline", "spec.rollout.deadline"),
            ("/rollout/onFailure", "spec.rollout.onFailure"),
            ("/rollout/allowDowngrade", "spec.rollout.allowDowngrade"),
            ("/crdUpgrades/exceptions", "spec.crdUpgrades"),
            ("/config", "spec.config"),
        ] {
            let set = spec.pointer(pointer).is_some_and(|value| {
                !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
            });
            if set {
                self.warnings.insert(format!(
                    "{field} is set and has no effect yet ({})",
                    codes::install::NOT_IMPLEMENTED
                ));
            }
        }
    }

    /// Says how the Bundle is; whether its content can be installed.
    pub(in crate::reconcile) fn set_bundle_condition(
        &mut self,
        generated: &GeneratedBundle,
    ) -> bool {
        let name = &generated.name;
        let (state, found, message) = match generated.status.phase.as_deref() {
            _ if generated.content.is_some() => (
                State::True,
                reason::UNPACK_SUCCESSFUL,
                format!("Successfully unpacked the {name} Bundle"),
            ),
            Some(names::PHASE_FAILING) => (
                State::False,
                reason::UNPACK_FAILED,
                format!(
                    "Failed to unpack the {name} Bundle: {}",
                    generated.message()
                ),
            ),
            Some(names::PHASE_UNPACKING) => (
                State::False,
                reason::UNPACKING,
                format!("Waiting for the {name} Bundle to be unpacked"),
            ),
            _ => (
                State::False,
                reason::UNPACK_PENDING,
                format!("Waiting for the {name} Bundle to be unpacked"),
            ),
        };
        self.conditions
            .set(condition::HAS_VALID_BUNDLE, state, found, &message);
        state == State::True
    }

    pub(in crate::reconcile) fn set_installed_condition(
        &mut self,
        generated: &GeneratedBundle,
        in_place: bool,
    ) {
        if in_place && self.status.active_bundle.as_deref() == Some(&generated.name) {
            self.conditions.set(
                condition::INSTALLED,
                State::True,
                reason::INSTALLATION_SUCCEEDED,
                &format!("Instantiated bundle {} successfully", generated.name),
            );
        } else if self.status.active_bundle.is_none() {
            let failed = generated.status.phase.as_deref() == Some(names::PHASE_FAILING);
            let (state, found) = if failed {
                (State::False, reason::UNPACK_FAILED)
            } else {
                (State::Unknown, reason::UNPACK_PENDING)
            };
            self.conditions.set(
                condition::INSTALLED,
                state,
                found,
                "nothing is installed yet",
            );
        }
    }

    pub(in crate::reconcile) fn set_error_condition(&mut self, error: &ReconcileError) {
        // What is installed stays so.
        if error.reason == reason::RIGHTS_WITHDRAWN {
            return;
        }
        let state = if error.cannot_tell() && self.status.active_bundle.is_none() {
            State::False
        } else if error.cannot_tell() {
            State::Unknown
        } else {
            State::False
        };
        if self.conditions.is_true(condition::HAS_VALID_BUNDLE)
            || self.status.active_bundle.is_none()
        {
            self.conditions
                .set(condition::INSTALLED, state, error.reason, &error.message);
        }
    }

    /// Sets the conditions that follow from what is known of the objects, and lists what has drifted.
    pub(in crate::reconcile) fn set_object_conditions(&mut self, error: Option<&ReconcileError>) {
        let states = &self.ctx.states;
        let drifted = states.drifted(&self.name);
        self.status.drift = drifted
            .iter()
            .take(LISTED)
            .map(|(key, since)| DriftedObject {
                object: key.clone(),
                since: jiff::Timestamp::from_second(since.as_second())
                    .ok()
                    .map(Time),
            })
            .collect();
        let drifted: Vec<String> = drifted.into_keys().collect();
        let blind = self.ctx.watches.blind(&self.name);
        let correction = if self.spec.paused {
            Correction::Paused
        } else if self.rights_are_withdrawn() {
            Correction::RightsWithdrawn
        } else if self.spec.correct_drift {
            Correction::Restored
        } else {
            Correction::Reported
        };
        let missing = states.missing(&self.name);
        let fought = states.fought(&self.name);
        let mut unhealthy = states.unhealthy(&self.name);
        unhealthy.extend(self.failed_jobs());
        let observed = Observed {
            coverage: states.coverage(&self.name, self.installed_content().is_some()),
            correction,
            drifted: &drifted,
            missing: &missing,
            fought: &fought,
            unhealthy: &unhealthy,
            blind: blind.as_deref(),
        };
        let generation = self.object.metadata.generation;
        let is_installed = self
            .conditions
            .get(condition::INSTALLED)
            .is_some_and(|set| {
                set.status == State::True && Some(set.observed_generation) == generation
            });
        let bundle = self.conditions.get(condition::HAS_VALID_BUNDLE).cloned();
        let installation = Installation {
            is_paused: self.spec.paused,
            error: error.map(|error| {
                let retried = error.retry != RetryPolicy::OnChange;
                (error.reason, error.message.as_str(), retried)
            }),
            bundle: bundle
                .as_ref()
                .filter(|set| set.status == State::False)
                .map(|set| {
                    let waits = set.reason != reason::UNPACK_FAILED;
                    (set.reason.as_str(), set.message.as_str(), waits)
                }),
            is_installed,
        };
        for (kind, told) in [
            (condition::DRIFTED, observed.drifted()),
            (condition::HEALTHY, observed.healthy()),
            (condition::PROGRESSING, observed.progressing(&installation)),
            (condition::READY, observed.ready(&installation)),
        ] {
            // The code that `--wait` and scripts decide by. Messages of RukPak's own conditions stay as RukPak has them.
            let message = match error {
                Some(error) if kind == condition::READY && !self.spec.paused => {
                    format!("{} [{}]", told.message, error.code.id)
                }
                _ => told.message,
            };
            self.conditions
                .set(kind, told.state, &told.reason, &message);
        }
    }

    /// The time until the next reconcile, if objects are to be restored before.
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
