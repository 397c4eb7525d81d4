//! Messages about rollouts in conditions and Events.

use std::time::Duration;

use bundle_api::names::reason;

use super::{HealthyContent, RolloutAttempt, RolloutState};
use crate::diagnostic::{Code, codes};

/// Result of a rollout, for conditions and Events. The *former content* is the content that was
/// healthy before the rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutReport {
    /// The content of the spec is applied, and the deadline has not passed. Contains the progress.
    Waiting(String),
    /// The deadline has passed, and the content of the spec stays installed.
    Failed(String),
    /// The former content is being installed.
    RollingBack(String),
    /// The former content is installed.
    RolledBack(String),
}

impl RolloutReport {
    /// Returns the report of a rollout whose deadline has passed; `None` for other rollouts.
    pub fn of(
        attempt: &RolloutAttempt,
        former: Option<&HealthyContent>,
        deadline: Duration,
    ) -> Option<Self> {
        let bundle = &attempt.content.bundle;
        let deadline = duration_text(deadline);
        let failed = |cause: &str| {
            format!(
                "bundle {bundle} was not healthy within spec.rollout.deadline {deadline}: {cause}"
            )
        };
        let former = former.map_or("", |former| former.content.bundle.as_str());
        // The failed content and the former content can come from the same Bundle, with different
        // configurations.
        let target = if former == bundle {
            format!("bundle {former} with its former configuration")
        } else {
            format!("bundle {former}")
        };
        Some(match &attempt.state {
            RolloutState::Applying | RolloutState::Waiting | RolloutState::Healthy => return None,
            RolloutState::Failed { cause, obstacle } => Self::Failed(match obstacle {
                None => failed(cause),
                Some(obstacle) => format!(
                    "{}; the former content is not installed again: {obstacle}",
                    failed(cause)
                ),
            }),
            RolloutState::RollingBack { cause } => {
                Self::RollingBack(format!("{}; installing {target} again", failed(cause)))
            }
            RolloutState::RolledBack { cause } => Self::RolledBack(format!(
                "{}; {target} is installed again, and the new content is not retried until the spec changes",
                failed(cause)
            )),
        })
    }

    /// Returns the reason of the conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Waiting(_) => reason::WAITING_FOR_HEALTH,
            Self::Failed(_) => reason::PROGRESS_DEADLINE_EXCEEDED,
            Self::RollingBack(_) => reason::ROLLING_BACK,
            Self::RolledBack(_) => reason::ROLLED_BACK,
        }
    }

    /// Returns the message of the conditions.
    pub fn message(&self) -> &str {
        match self {
            Self::Waiting(message)
            | Self::Failed(message)
            | Self::RollingBack(message)
            | Self::RolledBack(message) => message,
        }
    }

    /// Returns the diagnostic code; `None` before the deadline.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Waiting(_) => None,
            Self::Failed(_) => Some(codes::install::DEADLINE_EXCEEDED),
            Self::RollingBack(_) | Self::RolledBack(_) => Some(codes::install::ROLLED_BACK),
        }
    }
}

/// Returns a duration in the form of `spec.rollout.deadline`: `1h30m`, `10m`, `500ms`.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 3600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (u64::from(duration.subsec_millis()), "ms"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    parts.fold(String::new(), |text, (number, unit)| {
        format!("{text}{number}{unit}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rollout::RolloutContent;

    fn attempt(state: RolloutState) -> RolloutAttempt {
        RolloutAttempt {
            generation: 2,
            content: RolloutContent {
                bundle: "web-2".to_owned(),
                ..RolloutContent::default()
            },
            state,
            ..RolloutAttempt::default()
        }
    }

    fn message(state: RolloutState, former: &str) -> Option<String> {
        let former = HealthyContent {
            content: RolloutContent {
                bundle: former.to_owned(),
                ..RolloutContent::default()
            },
            ..HealthyContent::default()
        };
        let report = RolloutReport::of(&attempt(state), Some(&former), Duration::from_secs(90));
        report.map(|report| report.message().to_owned())
    }

    #[test]
    fn reports_name_deadline_cause_and_consequence() {
        let cause = || "Deployment.apps/a/web: 0 of 1".to_owned();
        let failed = "bundle web-2 was not healthy within spec.rollout.deadline 1m30s: Deployment.apps/a/web: 0 of 1";
        let held = |obstacle: Option<&str>| RolloutState::Failed {
            cause: cause(),
            obstacle: obstacle.map(str::to_owned),
        };
        for (state, former, expected) in [
            (RolloutState::Waiting, "web-1", None),
            (held(None), "web-1", Some(failed.to_owned())),
            (
                held(Some("no former content was healthy")),
                "",
                Some(format!(
                    "{failed}; the former content is not installed again: no former content was healthy"
                )),
            ),
            (
                RolloutState::RollingBack { cause: cause() },
                "web-1",
                Some(format!("{failed}; installing bundle web-1 again")),
            ),
            (
                RolloutState::RolledBack { cause: cause() },
                "web-2",
                Some(format!(
                    "{failed}; bundle web-2 with its former configuration is installed again, and the new content is not retried until the spec changes"
                )),
            ),
        ] {
            assert_eq!(message(state, former), expected);
        }
    }

    #[test]
    fn durations_have_the_form_of_the_field() {
        for (millis, expected) in [
            (2000, "2s"),
            (600_000, "10m"),
            (5_400_000, "1h30m"),
            (1500, "1s500ms"),
        ] {
            assert_eq!(duration_text(Duration::from_millis(millis)), expected);
        }
    }
}
