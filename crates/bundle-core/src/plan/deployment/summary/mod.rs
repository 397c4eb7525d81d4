//! Conditions `Drifted`, `Healthy`, `Progressing` and `Ready` of a BundleDeployment, computed from
//! the observed state of its objects. Objects that were not observed make a condition `Unknown`.

use std::collections::BTreeMap;

use bundle_api::names::reason;

use crate::plan::conditions::{ConditionStatus, some_of};
use crate::plan::rollout::RolloutReport;

/// Reason of conditions if drift may remain undetected.
const WATCH_FAILED_REASON: &str = reason::CREATE_DYNAMIC_WATCH_FAILED;
const INSTALLED: &str = reason::INSTALLATION_SUCCEEDED;
const INSTALLING: &str = "Installing";
const PAUSED: &str = reason::PAUSED;
/// Message of conditions while `spec.paused` is true.
const NOTHING_CHANGED: &str = "spec.paused is true: nothing is changed";
const NOT_INSTALLED_MESSAGE: &str = "the content is not installed yet";
/// Maximum number of objects in a message.
const MAX_NAMED: usize = 20;

/// Objects whose state is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// No content was installed.
    Nothing,
    /// Content is installed, but its objects were not observed since the process started.
    NotChecked,
    /// An installation was interrupted. Only the objects that were applied are observed.
    AppliedOnly,
    /// All objects of the content are observed.
    All,
}

/// Handling of objects that drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// Drifted objects are restored.
    Restored,
    /// Drift is not restored because `spec.paused` is true.
    Paused,
    /// Drift is not restored because the requester lost required permissions.
    RightsWithdrawn,
    /// Drift is not restored because `spec.drift.mode` is `Report`.
    Reported,
}

/// Observed state of the objects.
#[derive(Debug, Clone, Copy)]
pub struct ObservedObjects<'a> {
    /// Objects whose state is known.
    pub coverage: Coverage,
    /// Handling of drift.
    pub correction: Correction,
    /// Drifted objects, including missing objects.
    pub drifted: &'a [String],
    /// Missing objects.
    pub missing: &'a [String],
    /// Objects that another actor changes back repeatedly.
    pub contested: &'a [String],
    /// Unhealthy objects, with the reason.
    pub unhealthy: &'a BTreeMap<String, String>,
    /// Reason why drift may remain undetected; `None` if every drift is detected.
    pub undetected_drift_reason: Option<&'a str>,
}

/// Value of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionValue {
    /// Status of the condition.
    pub state: ConditionStatus,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

impl ConditionValue {
    fn new(state: ConditionStatus, reason: &str, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Status of the installation.
#[derive(Debug, Clone, Copy)]
pub struct Installation<'a> {
    /// `spec.paused`.
    pub is_paused: bool,
    /// Reason and message of the failure, and `true` if the reconciler retries without a change of
    /// the object. `None` without a failure.
    pub error: Option<(&'a str, &'a str, bool)>,
    /// Reason and message of a Bundle that cannot be installed, and `true` if the Bundle may become
    /// installable without an action of a user. `None` if the Bundle can be installed.
    pub bundle: Option<(&'a str, &'a str, bool)>,
    /// Rollout of the content; `None` if its objects were healthy.
    pub rollout: Option<&'a RolloutReport>,
    /// True if the content of the current generation is installed.
    pub is_installed: bool,
}

impl Installation<'_> {
    /// Returns a condition with reason and message of the rollout.
    fn rollout_value(report: &RolloutReport, state: ConditionStatus) -> ConditionValue {
        ConditionValue::new(state, report.reason(), report.message())
    }
}

impl ObservedObjects<'_> {
    /// Returns the condition `Drifted`.
    pub fn drifted(&self) -> ConditionValue {
        if !self.drifted.is_empty() {
            return ConditionValue::new(ConditionStatus::True, "OutOfLine", self.drift_message());
        }
        if let Some(why) = self.undetected_drift_reason {
            return ConditionValue::new(ConditionStatus::Unknown, WATCH_FAILED_REASON, why);
        }
        match self.coverage {
            Coverage::All => ConditionValue::new(
                ConditionStatus::False,
                "InPlace",
                "every object is as it was applied",
            ),
            other => other.not_known(),
        }
    }

    fn drift_message(&self) -> String {
        let list = some_of(self.drifted, MAX_NAMED);
        let mut message = match self.correction {
            Correction::Restored => format!("being restored: {list}"),
            Correction::Paused => format!("not restored, because spec.paused is true: {list}"),
            Correction::RightsWithdrawn => {
                format!("not restored, because the requester lost required permissions: {list}")
            }
            Correction::Reported => {
                format!("not restored, because spec.drift.mode is Report: {list}")
            }
        };
        if self.correction == Correction::Restored && !self.contested.is_empty() {
            let contested = some_of(self.contested, MAX_NAMED);
            message = format!(
                "{message}; restored with a delay of up to 30 s, because another client changes them back: {contested}"
            );
        }
        message
    }

    /// Returns the condition `Healthy`.
    pub fn healthy(&self) -> ConditionValue {
        if !self.unhealthy.is_empty() {
            let list: Vec<String> = self
                .unhealthy
                .iter()
                .map(|(key, why)| format!("{key}: {why}"))
                .collect();
            let rest = list.len().saturating_sub(MAX_NAMED);
            let mut message = list[..list.len() - rest].join("; ");
            if rest > 0 {
                message = format!("{message}; and {rest} more");
            }
            return ConditionValue::new(ConditionStatus::False, "Unhealthy", message);
        }
        match self.coverage {
            Coverage::All => {
                ConditionValue::new(ConditionStatus::True, "Healthy", "every object is healthy")
            }
            other => other.not_known(),
        }
    }

    /// Returns the condition `Progressing`.
    pub fn progressing(&self, installation: &Installation<'_>) -> ConditionValue {
        let (goes_on, found, message) = match *installation {
            Installation {
                is_paused: true, ..
            } => return ConditionValue::new(ConditionStatus::False, PAUSED, NOTHING_CHANGED),
            Installation {
                error: Some((found, message, retried)),
                ..
            } => (retried, found, message),
            Installation {
                bundle: Some((found, message, waits)),
                ..
            } => (waits, found, message),
            Installation {
                rollout: Some(report),
                ..
            } => {
                let goes_on = matches!(
                    report,
                    RolloutReport::Waiting(_) | RolloutReport::RollingBack(_)
                );
                (goes_on, report.reason(), report.message())
            }
            Installation {
                is_installed: false,
                ..
            } => (true, INSTALLING, NOT_INSTALLED_MESSAGE),
            _ => {
                let ready = self.ready(installation);
                return ConditionValue {
                    state: ConditionStatus::False,
                    ..ready
                };
            }
        };
        let state = if goes_on {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        ConditionValue::new(state, found, message)
    }

    /// Returns the condition `Ready`: the worst result of installation, missing objects, drift and
    /// health. Known drift counts only if `spec.drift.mode` is `Correct` and `spec.paused` is
    /// false.
    pub fn ready(&self, installation: &Installation<'_>) -> ConditionValue {
        if let Some((found, message, _)) = installation.error.or(installation.bundle) {
            return ConditionValue::new(ConditionStatus::False, found, message);
        }
        if let Some(report @ (RolloutReport::RollingBack(_) | RolloutReport::RolledBack(_))) =
            installation.rollout
            && !installation.is_paused
        {
            return Installation::rollout_value(report, ConditionStatus::False);
        }
        if !installation.is_installed {
            // While an installation waits between two phases, the rollout is reported although not
            // all objects are applied.
            if let Some(report) = installation.rollout
                && !installation.is_paused
            {
                return Installation::rollout_value(report, ConditionStatus::False);
            }
            return if installation.is_paused {
                ConditionValue::new(ConditionStatus::False, PAUSED, NOTHING_CHANGED)
            } else {
                ConditionValue::new(ConditionStatus::False, INSTALLING, NOT_INSTALLED_MESSAGE)
            };
        }
        if !self.missing.is_empty() {
            let list = some_of(self.missing, MAX_NAMED);
            return ConditionValue::new(
                ConditionStatus::False,
                "ObjectsMissing",
                format!("missing: {list}"),
            );
        }
        let drifted = self.drifted();
        let counts = matches!(
            self.correction,
            Correction::Restored | Correction::RightsWithdrawn
        );
        if counts && drifted.state == ConditionStatus::True {
            return ConditionValue {
                state: ConditionStatus::False,
                ..drifted
            };
        }
        let healthy = self.healthy();
        if healthy.state == ConditionStatus::False {
            return match installation.rollout {
                Some(report @ RolloutReport::Failed(_)) if !installation.is_paused => {
                    Installation::rollout_value(report, ConditionStatus::False)
                }
                _ => healthy,
            };
        }
        for unknown in [drifted, healthy] {
            if unknown.state == ConditionStatus::Unknown {
                return unknown;
            }
        }
        if installation.is_paused {
            return ConditionValue::new(ConditionStatus::True, PAUSED, NOTHING_CHANGED);
        }
        ConditionValue::new(
            ConditionStatus::True,
            INSTALLED,
            "the content is installed and healthy",
        )
    }
}

impl Coverage {
    fn not_known(self) -> ConditionValue {
        let (found, message) = match self {
            Self::Nothing => ("NotInstalled", "nothing is installed yet"),
            Self::NotChecked => (
                "NotChecked",
                "the installed objects were not read since bundle-webhook started",
            ),
            Self::AppliedOnly | Self::All => (
                INSTALLING,
                "the installation is not complete: only objects that were applied are read",
            ),
        };
        ConditionValue::new(ConditionStatus::Unknown, found, message)
    }
}

#[cfg(test)]
mod tests;
