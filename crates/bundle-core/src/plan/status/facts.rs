//! What a reconcile of a BundleDeployment found out.

use std::collections::BTreeMap;

use crate::diagnostic::{Code, codes};
use crate::plan::conditions::{ConditionChange, State};
use crate::plan::names::{condition, reason};
use crate::plan::summary::Coverage;

/// Facts of one reconcile. The default is that nothing was looked at.
#[derive(Debug, Clone, Default)]
pub struct DeploymentFacts {
    /// `spec.paused`.
    pub is_paused: bool,
    /// True if `spec.drift.mode` is `Correct`.
    pub corrects_drift: bool,
    /// Name of the Bundle that is recorded as installed.
    pub active_bundle: Option<String>,
    /// The Bundle of the present template; `None`: it was not looked at.
    pub bundle: Option<BundleFact>,
    /// The approval; `None`: nobody was asked.
    pub approval: Option<ApprovalFact>,
    /// The rights of the requesters; `None`: nobody was asked.
    pub rights: Option<RightsFact>,
    /// True if the content of the Bundle of the template is in place.
    pub is_in_place: bool,
    /// The failure that ended the reconcile.
    pub failure: Option<Failure>,
    /// The installed objects.
    pub objects: ObjectFacts,
}

/// The failure of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its entry in the catalogue.
    pub code: Code,
    /// The reason of the conditions.
    pub reason: &'static str,
    /// The message of the conditions.
    pub message: String,
    /// True if it is not known whether anything is wrong.
    pub is_unknown: bool,
    /// True if it is tried again by itself.
    pub is_retried: bool,
}

/// The Bundle of the present template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleFact {
    /// It could not be made, for this reason and with this message.
    NotMade(&'static str, String),
    /// The Bundle with this name is unpacked.
    Unpacked(String),
    /// It cannot be unpacked.
    Failing {
        /// Its name.
        name: String,
        /// The message of its condition `Unpacked`.
        message: String,
    },
    /// The content of the Bundle with this name is on its way.
    Unpacking(String),
    /// Nothing was done yet for the Bundle with this name.
    Pending(String),
}

impl BundleFact {
    /// Returns the name of the Bundle, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::NotMade(..) => None,
            Self::Unpacked(name)
            | Self::Failing { name, .. }
            | Self::Unpacking(name)
            | Self::Pending(name) => Some(name),
        }
    }

    /// The condition `HasValidBundle`.
    pub(super) fn condition(&self) -> ConditionChange {
        let waiting = |name: &str| format!("Waiting for the {name} Bundle to be unpacked");
        let (state, found, message) = match self {
            Self::NotMade(found, message) => (State::Unknown, *found, message.clone()),
            Self::Unpacked(name) => (
                State::True,
                reason::UNPACK_SUCCESSFUL,
                format!("Successfully unpacked the {name} Bundle"),
            ),
            Self::Failing { name, message } => (
                State::False,
                reason::UNPACK_FAILED,
                format!("Failed to unpack the {name} Bundle: {message}"),
            ),
            Self::Unpacking(name) => (State::False, reason::UNPACKING, waiting(name)),
            Self::Pending(name) => (State::False, reason::UNPACK_PENDING, waiting(name)),
        };
        ConditionChange::new(condition::HAS_VALID_BUNDLE, state, found, message)
    }
}

/// The approval of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalFact {
    /// Somebody approved it.
    Approved {
        /// Who.
        by: String,
        /// The digest of the content.
        digest: String,
    },
    /// The class with this name asks for none.
    NotRequired(String),
    /// Nobody approved it, or it is not known: the message.
    NotApproved(String),
    /// The class with this name asks for one, and the content is not known yet.
    ContentUnknown(String),
}

impl ApprovalFact {
    /// The condition `Approved`.
    pub(super) fn condition(&self) -> ConditionChange {
        let (state, found, message) = match self {
            Self::Approved { by, digest } => {
                (State::True, "Approved", format!("{by} approved {digest}"))
            }
            Self::NotRequired(class) => (
                State::True,
                "NotRequired",
                format!("class {class} asks for no approval"),
            ),
            Self::NotApproved(message) => (State::False, "NotApproved", message.clone()),
            Self::ContentUnknown(class) => (
                State::Unknown,
                "NotAsked",
                format!("class {class} asks for an approval, and the content is not unpacked yet"),
            ),
        };
        ConditionChange::new(condition::APPROVED, state, found, message)
    }
}

/// The rights of the requesters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RightsFact {
    /// The class with this name decides for whoever may use it.
    Delegated(String),
    /// These users may do all that the content does.
    Allowed(Vec<String>),
    /// They may not, or it is not known: state, reason and message.
    Refused(State, &'static str, String),
}

impl RightsFact {
    /// Returns what a failure with `code` and `message` says of the rights; `None` if it is not about rights.
    pub fn of_failure(code: Code, message: &str) -> Option<Self> {
        let about_rights = [
            (
                codes::install::NOT_AUTHORIZED,
                State::False,
                "RightsMissing",
            ),
            (
                codes::install::RIGHTS_WITHDRAWN,
                State::False,
                reason::RIGHTS_WITHDRAWN,
            ),
            (
                codes::install::REQUESTER_REFUSED,
                State::False,
                "RequesterRefused",
            ),
            (
                codes::install::REQUESTER_DIFFERS,
                State::False,
                "RequesterDiffers",
            ),
            (
                codes::install::DRY_RUN_UNSUPPORTED,
                State::False,
                "DryRunUnsupported",
            ),
            (
                codes::install::NOT_IMPERSONATED,
                State::Unknown,
                "RequesterNotImpersonated",
            ),
            (
                codes::install::RIGHTS_UNKNOWN,
                State::Unknown,
                "RightsUnknown",
            ),
        ];
        about_rights
            .into_iter()
            .find(|(about, ..)| *about == code)
            .map(|(_, state, found)| Self::Refused(state, found, message.to_owned()))
    }

    /// The condition `Authorized`.
    pub(super) fn condition(&self) -> ConditionChange {
        let (state, found, message) = match self {
            Self::Delegated(class) => (
                State::True,
                "Delegated",
                format!("class {class} decides for whoever may use it"),
            ),
            Self::Allowed(users) => (
                State::True,
                "RequesterMay",
                format!("{} may do all that the content does", users.join(", ")),
            ),
            Self::Refused(state, found, message) => (*state, *found, message.clone()),
        };
        ConditionChange::new(condition::AUTHORIZED, state, found, message)
    }
}

/// The installed objects.
#[derive(Debug, Clone)]
pub struct ObjectFacts {
    /// Of which objects it is known how they are.
    pub coverage: Coverage,
    /// The objects that drifted, those that are missing included.
    pub drifted: Vec<String>,
    /// The objects that do not exist.
    pub missing: Vec<String>,
    /// The objects that somebody keeps changing back.
    pub fought: Vec<String>,
    /// The objects that are not healthy, and why.
    pub unhealthy: BTreeMap<String, String>,
    /// Reason for which drift may go unseen.
    pub blind: Option<String>,
}

impl Default for ObjectFacts {
    fn default() -> Self {
        Self {
            coverage: Coverage::Nothing,
            drifted: Vec::new(),
            missing: Vec::new(),
            fought: Vec::new(),
            unhealthy: BTreeMap::new(),
            blind: None,
        }
    }
}
