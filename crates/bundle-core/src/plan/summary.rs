//! The conditions of a BundleDeployment that follow from what is known of its objects: `Drifted`, `Healthy`, `Progressing` and `Ready`. Nothing is claimed of
//! objects that were not looked at.
//! Not here: finding it out, or how conditions are kept (conditions).

use std::collections::BTreeMap;

use super::conditions::{State, some_of};
use super::names::reason;

/// Reasons, which are those of the API.
const BLIND: &str = reason::CREATE_DYNAMIC_WATCH_FAILED;
const INSTALLED: &str = reason::INSTALLATION_SUCCEEDED;
const INSTALLING: &str = "Installing";
const PAUSED: &str = reason::PAUSED;
/// Messages.
const NOTHING_CHANGED: &str = "spec.paused is true: nothing is changed";
const NOT_IN_PLACE: &str = "the content is not in place yet";
/// Most objects that a message names.
const NAMED: usize = 20;

/// Of which objects it is known how they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Nothing was installed.
    Nothing,
    /// Something was installed, and has not been looked at since the process started.
    NotLookedAt,
    /// An installation ended half-way. Objects that were applied are looked at, and others are not.
    Partly,
    /// Every object of the content.
    All,
}

/// Handling of objects that drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// They are restored.
    Restored,
    /// `spec.paused` is true.
    Paused,
    /// The requester lost rights.
    RightsWithdrawn,
    /// `spec.drift.mode` is `Report`.
    Reported,
}

/// Observed state of the objects.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Of which objects it is known.
    pub coverage: Coverage,
    /// Handling of drift.
    pub correction: Correction,
    /// The objects that drifted, those that are missing included.
    pub drifted: &'a [String],
    /// The objects that do not exist.
    pub missing: &'a [String],
    /// The objects that somebody keeps changing back.
    pub fought: &'a [String],
    /// The objects that are not healthy, and why.
    pub unhealthy: &'a BTreeMap<String, String>,
    /// Reason for which drift may go unseen.
    pub blind: Option<&'a str>,
}

/// The value of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its status.
    pub state: State,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

impl Told {
    fn new(state: State, reason: &str, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// State of the installation.
#[derive(Debug, Clone, Copy)]
pub struct Installation<'a> {
    /// `spec.paused`.
    pub is_paused: bool,
    /// Reason and message of what went wrong, and whether it is tried again by itself.
    pub error: Option<(&'a str, &'a str, bool)>,
    /// Reason for which the Bundle cannot be installed, and whether that may change by itself.
    pub bundle: Option<(&'a str, &'a str, bool)>,
    /// True if the content of the present generation is installed.
    pub is_installed: bool,
}

impl Observed<'_> {
    /// The condition `Drifted`.
    pub fn drifted(&self) -> Told {
        if !self.drifted.is_empty() {
            return Told::new(State::True, "OutOfLine", self.drift_message());
        }
        if let Some(why) = self.blind {
            return Told::new(State::Unknown, BLIND, why);
        }
        match self.coverage {
            Coverage::All => {
                Told::new(State::False, "InPlace", "every object is as it was applied")
            }
            other => other.not_known(),
        }
    }

    fn drift_message(&self) -> String {
        let list = some_of(self.drifted, NAMED);
        let mut message = match self.correction {
            Correction::Restored => format!("being restored: {list}"),
            Correction::Paused => format!("not restored, since spec.paused is true: {list}"),
            Correction::RightsWithdrawn => {
                format!("not restored, since the requester has lost rights: {list}")
            }
            Correction::Reported => {
                format!("not restored, since spec.drift.mode is Report: {list}")
            }
        };
        if self.correction == Correction::Restored && !self.fought.is_empty() {
            let fought = some_of(self.fought, NAMED);
            message = format!(
                "{message}; restored with pauses of up to 30 s, since somebody keeps changing it back: {fought}"
            );
        }
        message
    }

    /// The condition `Healthy`.
    pub fn healthy(&self) -> Told {
        if !self.unhealthy.is_empty() {
            let list: Vec<String> = self
                .unhealthy
                .iter()
                .map(|(key, why)| format!("{key}: {why}"))
                .collect();
            let rest = list.len().saturating_sub(NAMED);
            let mut message = list[..list.len() - rest].join("; ");
            if rest > 0 {
                message = format!("{message}; and {rest} more");
            }
            return Told::new(State::False, "Unhealthy", message);
        }
        match self.coverage {
            Coverage::All => Told::new(State::True, "Healthy", "every object is healthy"),
            other => other.not_known(),
        }
    }

    /// The condition `Progressing`.
    pub fn progressing(&self, installation: &Installation<'_>) -> Told {
        let (goes_on, found, message) = match *installation {
            Installation {
                is_paused: true, ..
            } => return Told::new(State::False, PAUSED, NOTHING_CHANGED),
            Installation {
                error: Some((found, message, retried)),
                ..
            } => (retried, found, message),
            Installation {
                bundle: Some((found, message, waits)),
                ..
            } => (waits, found, message),
            Installation {
                is_installed: false,
                ..
            } => (true, INSTALLING, NOT_IN_PLACE),
            _ => {
                let ready = self.ready(installation);
                return Told {
                    state: State::False,
                    ..ready
                };
            }
        };
        let state = if goes_on { State::True } else { State::False };
        Told::new(state, found, message)
    }

    /// The condition `Ready`: the worst of installation, objects that are missing, drift that is to be corrected, and health.
    pub fn ready(&self, installation: &Installation<'_>) -> Told {
        if let Some((found, message, _)) = installation.error.or(installation.bundle) {
            return Told::new(State::False, found, message);
        }
        if !installation.is_installed {
            return if installation.is_paused {
                Told::new(State::False, PAUSED, NOTHING_CHANGED)
            } else {
                Told::new(State::False, INSTALLING, NOT_IN_PLACE)
            };
        }
        if !self.missing.is_empty() {
            let list = some_of(self.missing, NAMED);
            return Told::new(State::False, "ObjectsMissing", format!("missing: {list}"));
        }
        let drifted = self.drifted();
        let counts = matches!(
            self.correction,
            Correction::Restored | Correction::RightsWithdrawn
        );
        if counts && drifted.state == State::True {
            return Told {
                state: State::False,
                ..drifted
            };
        }
        let healthy = self.healthy();
        if healthy.state == State::False {
            return healthy;
        }
        for unknown in [drifted, healthy] {
            if unknown.state == State::Unknown {
                return unknown;
            }
        }
        if installation.is_paused {
            return Told::new(State::True, PAUSED, NOTHING_CHANGED);
        }
        Told::new(
            State::True,
            INSTALLED,
            "the content is installed and healthy",
        )
    }
}

impl Coverage {
    fn not_known(self) -> Told {
        let (found, message) = match self {
            Self::Nothing => ("NotInstalled", "nothing is installed yet"),
            Self::NotLookedAt => (
                "NotLookedAt",
                "the installed objects have not been looked at since bundle-webhook started",
            ),
            Self::Partly | Self::All => (
                INSTALLING,
                "the installation is not complete: objects that were not applied yet are not looked at",
            ),
        };
        Told::new(State::Unknown, found, message)
    }
}

#[cfg(test)]
mod tests;
