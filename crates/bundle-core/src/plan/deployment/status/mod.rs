//! Conditions of a BundleDeployment, computed from the facts of a reconcile: `HasValidBundle`,
//! `Approved`, `Authorized`, `Installed`, `Drifted`, `Healthy`, `Progressing` and `Ready`. A
//! condition without new facts keeps its value.

mod ended;
mod facts;

pub use ended::{class_missing, not_admitted, removing};
pub use facts::{ApprovalFact, BundleFact, DeploymentFacts, Failure, ObjectFacts, PermissionFact};

use bundle_api::names::{condition, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::plan::conditions::{ConditionChange, ConditionStatus};
use crate::plan::rollout::RolloutReport;
use crate::plan::summary::{Correction, Installation, ObservedObjects};

/// Message of conditions for which nothing was observed yet.
const NOT_LOOKED_AT: &str = "not checked";

/// Previous conditions, with the changes of this reconcile.
struct Changes<'a> {
    before: &'a [Condition],
    generation: i64,
    made: Vec<ConditionChange>,
}

/// Value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value<'a> {
    state: ConditionStatus,
    reason: &'a str,
    message: &'a str,
    /// True if the condition describes the current generation.
    is_present: bool,
}

impl Changes<'_> {
    fn get(&self, kind: &str) -> Option<Value<'_>> {
        let before = self.before.iter().find(|before| before.type_ == kind);
        let before = before.map(|before| Value {
            state: ConditionStatus::of(before),
            reason: &before.reason,
            message: &before.message,
            is_present: before.observed_generation == Some(self.generation),
        });
        let mut changes = self.made.iter().rev();
        changes
            .find(|change| change.kind == kind)
            .map(|change| Value {
                state: change.state,
                reason: &change.reason,
                message: &change.message,
                is_present: true,
            })
            .or(before)
    }

    fn set(
        &mut self,
        kind: &'static str,
        state: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        let change = ConditionChange::new(kind, state, reason, message);
        self.made.push(change);
    }

    fn set_default(&mut self, kind: &'static str, reason: &str, message: &str) {
        if self.get(kind).is_none() {
            self.set(kind, ConditionStatus::Unknown, reason, message);
        }
    }
}

impl DeploymentFacts {
    /// Returns the changes of conditions in order, at most one of each type. `before` are the
    /// conditions of the stored status. `generation` is the generation of the object.
    pub fn conditions(&self, before: &[Condition], generation: i64) -> Vec<ConditionChange> {
        let mut changes = Changes {
            before,
            generation,
            made: Vec::new(),
        };
        if let Some(bundle) = &self.bundle {
            changes.made.push(bundle.condition());
        }
        if let Some(approval) = &self.approval {
            changes.made.push(approval.condition());
        }
        if let Some(rights) = &self.rights {
            changes.made.push(rights.condition());
        }
        self.set_installed(&mut changes);
        for kind in [condition::AUTHORIZED, condition::APPROVED] {
            let message = "the content was not checked yet";
            changes.set_default(kind, "NotAsked", message);
        }
        let kind = condition::HAS_VALID_BUNDLE;
        changes.set_default(kind, reason::UNPACK_PENDING, "not checked yet");
        self.set_object_conditions(&mut changes);
        changes.made
    }

    /// Returns true if the requesters have the required permissions. If this reconcile did not
    /// check the permissions, the stored condition decides.
    pub fn is_authorized(&self, before: &[Condition]) -> bool {
        let changed = self.rights.as_ref().map(|rights| rights.condition().state);
        let before = before
            .iter()
            .find(|before| before.type_ == condition::AUTHORIZED)
            .map(ConditionStatus::of);
        changed.or(before) == Some(ConditionStatus::True)
    }

    fn set_installed(&self, changes: &mut Changes<'_>) {
        let kind = condition::INSTALLED;
        let is_something_installed = self.active_bundle.is_some();
        if let (None, Some(report @ RolloutReport::RolledBack(_))) = (&self.failure, &self.rollout)
        {
            changes.set(
                kind,
                ConditionStatus::False,
                report.reason(),
                report.message(),
            );
            return;
        }
        let Some(failure) = &self.failure else {
            let wanted = self.bundle.as_ref().and_then(BundleFact::name);
            if self.is_in_place && is_something_installed && self.active_bundle.as_deref() == wanted
            {
                let name = wanted.unwrap_or_default();
                let message = format!("Instantiated bundle {name} successfully");
                changes.set(
                    kind,
                    ConditionStatus::True,
                    reason::INSTALLATION_SUCCEEDED,
                    message,
                );
            } else if let (false, false, Some(report)) =
                (is_something_installed, self.is_in_place, &self.rollout)
            {
                let (reason, message) = (report.reason(), report.message());
                changes.set(kind, ConditionStatus::False, reason, message);
            } else if !is_something_installed {
                let is_failing = matches!(self.bundle, Some(BundleFact::Failing { .. }));
                let (state, found) = if is_failing {
                    (ConditionStatus::False, reason::UNPACK_FAILED)
                } else {
                    (ConditionStatus::Unknown, reason::UNPACK_PENDING)
                };
                changes.set(kind, state, found, "nothing is installed yet");
            }
            return;
        };
        // A withdrawn permission does not change the condition `Installed` of installed content.
        if failure.reason == reason::RIGHTS_WITHDRAWN {
            return;
        }
        let has_bundle = changes
            .get(condition::HAS_VALID_BUNDLE)
            .is_some_and(|bundle| bundle.state == ConditionStatus::True);
        if has_bundle || !is_something_installed {
            let state = if failure.is_unknown && is_something_installed {
                ConditionStatus::Unknown
            } else {
                ConditionStatus::False
            };
            changes.set(kind, state, failure.reason, &failure.message);
        }
    }

    fn correction(&self, changes: &Changes<'_>) -> Correction {
        let rights = changes.get(condition::AUTHORIZED);
        if self.is_paused {
            Correction::Paused
        } else if rights.is_some_and(|rights| rights.reason == reason::RIGHTS_WITHDRAWN) {
            Correction::RightsWithdrawn
        } else if self.corrects_drift {
            Correction::Restored
        } else {
            Correction::Reported
        }
    }

    fn set_object_conditions(&self, changes: &mut Changes<'_>) {
        let objects = &self.objects;
        let observed = ObservedObjects {
            coverage: objects.coverage,
            correction: self.correction(changes),
            drifted: &objects.drifted,
            missing: &objects.missing,
            contested: &objects.contested,
            unhealthy: &objects.unhealthy,
            undetected_drift_reason: objects.blind.as_deref(),
        };
        let failure = self.failure.as_ref();
        let installation = Installation {
            is_paused: self.is_paused,
            error: failure.map(|failure| {
                let is_retried = failure.is_retried;
                (failure.reason, failure.message.as_str(), is_retried)
            }),
            bundle: changes
                .get(condition::HAS_VALID_BUNDLE)
                .filter(|bundle| bundle.state == ConditionStatus::False)
                .map(|bundle| {
                    let waits = bundle.reason != reason::UNPACK_FAILED;
                    (bundle.reason, bundle.message, waits)
                }),
            rollout: self.rollout.as_ref(),
            is_installed: changes.get(condition::INSTALLED).is_some_and(|installed| {
                installed.state == ConditionStatus::True && installed.is_present
            }),
        };
        let conditions = [
            (condition::DRIFTED, observed.drifted()),
            (condition::HEALTHY, observed.healthy()),
            (condition::PROGRESSING, observed.progressing(&installation)),
            (condition::READY, observed.ready(&installation)),
        ];
        for (kind, condition) in conditions {
            // The message ends with the diagnostic code, because `--wait` and scripts read the
            // code. Messages of RukPak's own conditions are unchanged.
            let of_rollout = self.rollout.as_ref();
            let of_rollout = of_rollout.filter(|report| report.reason() == condition.reason);
            let code = match failure {
                Some(failure) if !self.is_paused => Some(failure.code),
                Some(_) => None,
                None => of_rollout.and_then(RolloutReport::code),
            };
            let message = match code {
                Some(code) if kind == condition::READY => {
                    format!("{} [{}]", condition.message, code.id)
                }
                _ => condition.message,
            };
            changes.set(kind, condition.state, condition.reason, message);
        }
    }
}

#[cfg(test)]
mod tests;
