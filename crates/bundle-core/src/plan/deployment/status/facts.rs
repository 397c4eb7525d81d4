//! Observed facts of a reconcile of a BundleDeployment. The conditions are computed from these
//! facts.

use std::collections::BTreeMap;

use bundle_api::names::{condition, reason};

use crate::diagnostic::{Code, codes};
use crate::plan::conditions::{ConditionChange, ConditionStatus};
use crate::plan::rollout::RolloutReport;
use crate::plan::summary::Coverage;

/// Facts of one reconcile. By default, nothing was observed.
#[derive(Debug, Clone, Default)]
pub struct DeploymentFacts {
    /// `spec.paused`.
    pub is_paused: bool,
    /// True if `spec.drift.mode` is `Correct`.
    pub corrects_drift: bool,
    /// Name of the Bundle that is recorded as installed; `None` if nothing is installed.
    pub active_bundle: Option<String>,
    /// Bundle of the current template; `None` if the Bundle was not observed.
    pub bundle: Option<BundleFact>,
    /// Approval of the content; `None` if the approval was not checked.
    pub approval: Option<ApprovalFact>,
    /// Permissions of the requesters; `None` if the permissions were not checked.
    pub rights: Option<PermissionFact>,
    /// True if the content of the Bundle of the template is applied completely.
    pub is_in_place: bool,
    /// Rollout of the content; `None` if its objects were healthy.
    pub rollout: Option<RolloutReport>,
    /// Failure that ended the reconcile; `None` if the reconcile succeeded.
    pub failure: Option<Failure>,
    /// State of the installed objects.
    pub objects: ObjectFacts,
}

/// Failure of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Diagnostic code.
    pub code: Code,
    /// Reason of the conditions.
    pub reason: &'static str,
    /// Message of the conditions.
    pub message: String,
    /// True if the result is unknown because a dependency did not respond.
    pub is_unknown: bool,
    /// True if the reconciler retries without a change of the object.
    pub is_retried: bool,
}

/// Bundle of the current template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleFact {
    /// The Bundle could not be created. Contains reason and message.
    NotMade(&'static str, String),
    /// The Bundle with this name is unpacked.
    Unpacked(String),
    /// The Bundle could not be unpacked.
    Failing {
        /// Name of the Bundle.
        name: String,
        /// Message of the Bundle's condition `Unpacked`.
        message: String,
    },
    /// The content of the Bundle with this name is being fetched.
    Unpacking(String),
    /// The Bundle with this name was not reconciled yet.
    Pending(String),
}

impl BundleFact {
    /// Returns the name of the Bundle, if the Bundle exists.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::NotMade(..) => None,
            Self::Unpacked(name)
            | Self::Failing { name, .. }
            | Self::Unpacking(name)
            | Self::Pending(name) => Some(name),
        }
    }

    /// Returns the condition `HasValidBundle`.
    pub(super) fn condition(&self) -> ConditionChange {
        let waiting = |name: &str| format!("Waiting for the {name} Bundle to be unpacked");
        let (state, found, message) = match self {
            Self::NotMade(found, message) => (ConditionStatus::Unknown, *found, message.clone()),
            Self::Unpacked(name) => (
                ConditionStatus::True,
                reason::UNPACK_SUCCESSFUL,
                format!("Successfully unpacked the {name} Bundle"),
            ),
            Self::Failing { name, message } => (
                ConditionStatus::False,
                reason::UNPACK_FAILED,
                format!("Failed to unpack the {name} Bundle: {message}"),
            ),
            Self::Unpacking(name) => (ConditionStatus::False, reason::UNPACKING, waiting(name)),
            Self::Pending(name) => (
                ConditionStatus::False,
                reason::UNPACK_PENDING,
                waiting(name),
            ),
        };
        ConditionChange::new(condition::HAS_VALID_BUNDLE, state, found, message)
    }
}

/// Approval of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalFact {
    /// The content is approved.
    Approved {
        /// Name of the approver.
        by: String,
        /// Digest of the content.
        digest: String,
    },
    /// The class with this name requires no approval.
    NotRequired(String),
    /// The content is not approved, or its approval is unknown. Contains the message.
    NotApproved(String),
    /// The class with this name requires an approval, and the content is not unpacked yet.
    ContentUnknown(String),
}

impl ApprovalFact {
    /// Returns the condition `Approved`.
    pub(super) fn condition(&self) -> ConditionChange {
        let (state, found, message) = match self {
            Self::Approved { by, digest } => (
                ConditionStatus::True,
                "Approved",
                format!("{by} approved {digest}"),
            ),
            Self::NotRequired(class) => (
                ConditionStatus::True,
                "NotRequired",
                format!("class {class} requires no approval"),
            ),
            Self::NotApproved(message) => (ConditionStatus::False, "NotApproved", message.clone()),
            Self::ContentUnknown(class) => (
                ConditionStatus::Unknown,
                "NotAsked",
                format!("class {class} requires an approval, and the content is not unpacked yet"),
            ),
        };
        ConditionChange::new(condition::APPROVED, state, found, message)
    }
}

/// Permissions of the requesters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionFact {
    /// The class with this name delegates its permissions to all its users.
    Delegated(String),
    /// These requesters have all permissions that the content requires.
    Allowed(Vec<String>),
    /// Permissions are missing or unknown. Contains status, reason and message.
    Refused(ConditionStatus, &'static str, String),
}

impl PermissionFact {
    /// Returns the permission fact that a failure with `code` and `message` reports; `None` if the
    /// failure does not concern permissions.
    pub fn of_failure(code: Code, message: &str) -> Option<Self> {
        let about_rights = [
            (
                codes::install::NOT_AUTHORIZED,
                ConditionStatus::False,
                "RightsMissing",
            ),
            (
                codes::install::RIGHTS_WITHDRAWN,
                ConditionStatus::False,
                reason::RIGHTS_WITHDRAWN,
            ),
            (
                codes::install::REQUESTER_REFUSED,
                ConditionStatus::False,
                "RequesterRefused",
            ),
            (
                codes::install::REQUESTER_DIFFERS,
                ConditionStatus::False,
                "RequesterDiffers",
            ),
            (
                codes::install::DRY_RUN_UNSUPPORTED,
                ConditionStatus::False,
                "DryRunUnsupported",
            ),
            (
                codes::install::NOT_IMPERSONATED,
                ConditionStatus::Unknown,
                "RequesterNotImpersonated",
            ),
            (
                codes::install::RIGHTS_UNKNOWN,
                ConditionStatus::Unknown,
                "RightsUnknown",
            ),
        ];
        about_rights
            .into_iter()
            .find(|(about, ..)| *about == code)
            .map(|(_, state, found)| Self::Refused(state, found, message.to_owned()))
    }

    /// Returns the condition `Authorized`.
    pub(super) fn condition(&self) -> ConditionChange {
        let (state, found, message) = match self {
            Self::Delegated(class) => (
                ConditionStatus::True,
                "Delegated",
                format!("class {class} delegates its permissions to all its users"),
            ),
            Self::Allowed(users) => (
                ConditionStatus::True,
                "RequesterMay",
                format!(
                    "all required permissions are granted to {}",
                    users.join(", ")
                ),
            ),
            Self::Refused(state, found, message) => (*state, *found, message.clone()),
        };
        ConditionChange::new(condition::AUTHORIZED, state, found, message)
    }
}

/// State of the installed objects.
#[derive(Debug, Clone)]
pub struct ObjectFacts {
    /// Objects whose state is known.
    pub coverage: Coverage,
    /// Drifted objects, including missing objects.
    pub drifted: Vec<String>,
    /// Missing objects.
    pub missing: Vec<String>,
    /// Objects that another actor changes back repeatedly.
    pub contested: Vec<String>,
    /// Unhealthy objects, with the reason.
    pub unhealthy: BTreeMap<String, String>,
    /// Reason why drift may remain undetected; `None` if every drift is detected.
    pub blind: Option<String>,
}

impl Default for ObjectFacts {
    fn default() -> Self {
        Self {
            coverage: Coverage::Nothing,
            drifted: Vec::new(),
            missing: Vec::new(),
            contested: Vec::new(),
            unhealthy: BTreeMap::new(),
            blind: None,
        }
    }
}
