//! Rollout of new content. If its objects are not healthy by `spec.rollout.deadline`, the content
//! stays installed, or the content that was healthy before is installed again. The result depends
//! only on the record in the inventory and on observed facts; the time is an argument.

mod messages;
mod progress;
mod record;

use std::fmt;
use std::time::Duration;

use crate::diagnostic::{Code, Outcome, codes};
use crate::plan::retry::RetryPolicy;
use crate::review::PartRequesters;

pub use messages::{RolloutReport, duration_text};
pub use progress::{AwaitedPhase, progress};
pub use record::{
    ContentRequest, HealthyContent, MAX_RETURN_BYTES, RolloutAttempt, RolloutContent,
    RolloutRecord, RolloutSpec, RolloutState,
};

/// Observed state of the content of the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentState {
    /// Not all objects are applied, or their health was not read. For example, a dependency does
    /// not respond.
    Unknown,
    /// The last attempt to apply all objects failed.
    Failed,
    /// At least one object is missing or not healthy: of all objects, or, while the installation
    /// waits between two phases, of the objects of the applied phase.
    Unhealthy,
    /// All objects are applied and healthy.
    Healthy,
}

/// Facts of a rollout, known at the end of a reconcile.
#[derive(Debug, Clone, Copy)]
pub struct ObservedRollout<'a> {
    /// Record in the inventory.
    pub record: &'a RolloutRecord,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec.provisionerClassName`.
    pub class: &'a str,
    /// Requesters of the spec.
    pub requesters: &'a PartRequesters,
    /// Content of the spec.
    pub content: &'a RolloutContent,
    /// State of the content of the spec.
    pub state: ContentState,
    /// `spec.paused`.
    pub is_paused: bool,
    /// True if `spec.rollout.onFailure` is `RollBack`.
    pub rolls_back: bool,
    /// `spec.rollout.deadline`.
    pub deadline: Duration,
    /// Current time in milliseconds since 1970.
    pub now: i64,
}

/// Next step of a rollout. The *former content* is the content that was healthy before the rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutStep {
    /// Do nothing until a watch reports a change.
    Keep,
    /// Compute the next step again after this time.
    Wait(Duration),
    /// The clock moved back: the time until the deadline starts again now.
    Restart,
    /// Record the content of the spec as the healthy content.
    RecordHealthy,
    /// Report the failed content, and keep the failed content installed. Contains the reason why
    /// the former content is not installed again; `None` if `spec.rollout.onFailure` is `Hold`.
    ReportFailure(Option<RollbackObstacle>),
    /// Install the former content.
    RollBack,
}

/// Reason why the former content (the content that was healthy before the rollout) is not installed
/// again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackObstacle {
    /// No other content was healthy before.
    NoFormerContent,
    /// The content of the spec, with its configuration, is the content that was healthy before.
    SameContent,
    /// Template and configuration of the former content are too large for the record.
    NotRecorded,
    /// The former content was installed with another class.
    OtherClass {
        /// Name of the other class.
        former: String,
    },
    /// At least one requester of the former content is not a requester of the content of the spec.
    OtherRequester {
        /// User names of these requesters.
        former: Vec<String>,
    },
    /// An earlier version of this project recorded the former content without its requesters.
    RequestersNotRecorded,
    /// The Bundle of the former content with this name does not exist, or has other content.
    BundleLost(String),
    /// A check rejects the former content. Contains the message.
    Refused(String),
}

/// Returns true if this failure of a check ends the automatic rollback to the former content. A
/// missing requirement always ends the rollback. After other failures, the rollback is retried if a
/// dependency did not respond, or if the result can change soon.
pub fn is_refusal(code: Code, retry: RetryPolicy) -> bool {
    code == codes::install::REQUIREMENT_MISSING
        || (code.outcome != Outcome::Unknown && retry != RetryPolicy::Soon)
}

impl fmt::Display for RollbackObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFormerContent => write!(f, "no former content was healthy"),
            Self::SameContent => write!(
                f,
                "the spec requests the content and the configuration that were healthy before"
            ),
            Self::NotRecorded => write!(
                f,
                "template and configuration of the former content exceed {} KiB and are not recorded",
                MAX_RETURN_BYTES >> 10
            ),
            Self::OtherClass { former } => write!(
                f,
                "the former content was installed with class {former}, and an automatic rollback does not change the class"
            ),
            Self::OtherRequester { former } => write!(
                f,
                "the former content was requested by {}, who requested no part of the current spec",
                former.join(", ")
            ),
            Self::RequestersNotRecorded => f.write_str(
                "an earlier version of bundle-webhook recorded the former content without its requesters",
            ),
            Self::BundleLost(name) => write!(
                f,
                "Bundle {name} was deleted, or no longer has the content that was healthy"
            ),
            Self::Refused(message) => f.write_str(message),
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod pause_tests;
#[cfg(test)]
mod tests;
