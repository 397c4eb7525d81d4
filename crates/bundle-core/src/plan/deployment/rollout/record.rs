//! Record of the rollout in the inventory: the content that was healthy last, and the rollout of
//! the content of the spec. Decisions only use this record, because users can write the status.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ContentState, ObservedRollout, RollbackObstacle, RolloutStep};
use crate::configuration::json_bytes;
use crate::plan::conditions::bounded;
use crate::plan::revisions::config_digest;

/// Largest recorded template and configuration of one content together, as JSON in bytes.
pub const MAX_RETURN_BYTES: usize = 16 << 10;
/// Longest recorded cause in bytes.
const MAX_CAUSE: usize = 1024;

/// Rollout of one BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutRecord {
    /// Content that was healthy last. An automatic rollback installs this content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<HealthyContent>,
    /// Rollout of the content that was applied last for a spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<RolloutAttempt>,
}

/// Identity of content together with its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutContent {
    /// Name of the Bundle.
    pub bundle: String,
    /// Digest of the content.
    pub digest: String,
    /// Digest of `spec.config`.
    pub config_digest: String,
}

impl RolloutContent {
    /// Returns the identity of the content with this configuration. `config` is null without a
    /// configuration.
    pub fn new(bundle: &str, digest: &str, config: &Value) -> Self {
        Self {
            bundle: bundle.to_owned(),
            digest: digest.to_owned(),
            config_digest: config_digest(config).to_string(),
        }
    }
}

/// Content whose objects were all healthy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthyContent {
    /// Content and configuration.
    pub content: RolloutContent,
    /// Uid of the Bundle.
    pub bundle_uid: String,
    /// Fields of the spec that requested the content; `None` if they exceed [`MAX_RETURN_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ContentRequest>,
}

/// Fields of a spec of a BundleDeployment that request content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContentRequest {
    /// `spec.provisionerClassName`.
    pub class: String,
    /// `spec.template`.
    pub template: Value,
    /// `spec.config`; null without one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

impl ContentRequest {
    /// Returns the fields of `spec`.
    pub fn of(spec: &Value) -> Self {
        let class = spec["provisionerClassName"].as_str();
        Self {
            class: class.unwrap_or_default().to_owned(),
            template: spec["template"].clone(),
            config: spec["config"].clone(),
        }
    }

    /// Returns the size of template and configuration as JSON, in bytes.
    fn bytes(&self) -> usize {
        json_bytes(&self.template) + json_bytes(&self.config)
    }

    /// Returns `spec` with the template and the configuration of this request. All other settings
    /// stay unchanged.
    pub fn applied_to(&self, spec: &Value) -> Value {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.insert("template".to_owned(), self.template.clone());
            if self.config.is_null() {
                fields.remove("config");
            } else {
                fields.insert("config".to_owned(), self.config.clone());
            }
        }
        spec
    }
}

impl HealthyContent {
    /// Returns the record of healthy content that `request` requested.
    pub fn new(content: RolloutContent, bundle_uid: &str, request: ContentRequest) -> Self {
        Self {
            content,
            bundle_uid: bundle_uid.to_owned(),
            request: (request.bytes() <= MAX_RETURN_BYTES).then_some(request),
        }
    }
}

/// Rollout of the content of one generation of the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutAttempt {
    /// `metadata.generation` of the spec. Each write of the spec starts another rollout.
    pub generation: i64,
    /// Content of the spec.
    pub content: RolloutContent,
    /// Start of the deadline, in milliseconds since 1970.
    pub since: i64,
    /// State of the rollout.
    pub state: RolloutState,
}

/// State of a rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum RolloutState {
    /// The first objects were or are being applied. The deadline starts at the first attempt.
    #[default]
    Applying,
    /// All objects are applied. The deadline starts at the end of the installation.
    Waiting,
    /// All objects were healthy.
    Healthy,
    /// The deadline has passed. The content stays installed.
    #[serde(alias = "held")]
    Failed {
        /// Unhealthy objects at the deadline.
        cause: String,
        /// Reason why the former content was not installed again; `None` if the spec does not
        /// request a rollback.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        obstacle: Option<String>,
    },
    /// The deadline has passed. The former content is being installed again.
    #[serde(alias = "returning")]
    RollingBack {
        /// Unhealthy objects at the deadline.
        cause: String,
    },
    /// The former content is installed again.
    #[serde(alias = "returned")]
    RolledBack {
        /// Unhealthy objects at the deadline.
        cause: String,
    },
}

impl RolloutRecord {
    /// Returns the size of the recorded template and configuration as JSON, in bytes.
    pub(in crate::plan) fn request_bytes(&self) -> usize {
        let healthy = self.healthy.as_ref();
        let request = healthy.and_then(|healthy| healthy.request.as_ref());
        request.map_or(0, ContentRequest::bytes)
    }

    /// Returns true if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the rollout of this generation of the spec.
    pub fn of_generation(&self, generation: i64) -> Option<&RolloutAttempt> {
        let attempt = self.attempt.as_ref();
        attempt.filter(|attempt| attempt.generation == generation)
    }

    /// Returns the former content that is installed in place of the content of this generation of
    /// the spec; `None` if the content of the spec is to be installed.
    pub fn replacement(&self, generation: i64) -> Option<&HealthyContent> {
        let attempt = self.of_generation(generation)?;
        match attempt.state {
            RolloutState::RollingBack { .. } | RolloutState::RolledBack { .. } => {
                self.healthy.as_ref()
            }
            _ => None,
        }
    }

    /// Records that the rollout of `content` begins. The caller records this before it applies the
    /// first object. The rollout of an earlier spec ends. A repeated call for the same content has
    /// no effect. A call also has no effect while the former content replaces the content of this
    /// generation.
    pub fn begin(&mut self, generation: i64, content: &RolloutContent, now: i64) {
        if self.replacement(generation).is_some() {
            return;
        }
        let same = self.of_generation(generation);
        if same.is_none_or(|attempt| attempt.content != *content) {
            self.attempt = Some(RolloutAttempt {
                generation,
                content: content.clone(),
                since: now,
                state: RolloutState::Applying,
            });
        }
    }

    /// Records that all objects of `content` are applied.
    pub fn complete(&mut self, generation: i64, content: &RolloutContent, now: i64) {
        let is_former = self
            .replacement(generation)
            .is_some_and(|former| former.content == *content);
        self.begin(generation, content, now);
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        match &attempt.state {
            RolloutState::RollingBack { cause } if is_former => {
                let cause = cause.clone();
                attempt.state = RolloutState::RolledBack { cause };
            }
            RolloutState::Applying => {
                attempt.state = RolloutState::Waiting;
                attempt.since = now;
            }
            _ => {}
        }
    }

    /// Records a step of the rollout. `cause` lists the unhealthy objects. `healthy` returns the
    /// record of the content of the spec, and is called only if this content is healthy.
    pub fn record(
        &mut self,
        step: &RolloutStep,
        (generation, now): (i64, i64),
        cause: &str,
        healthy: impl FnOnce() -> HealthyContent,
    ) {
        let cause = bounded(cause, MAX_CAUSE);
        let state = match step {
            RolloutStep::Keep | RolloutStep::Wait(_) => return,
            RolloutStep::Restart => {
                if let Some(attempt) = &mut self.attempt {
                    attempt.since = now;
                }
                return;
            }
            RolloutStep::RecordHealthy => {
                let content = healthy();
                let attempt = self.attempt.get_or_insert_default();
                if attempt.generation != generation || attempt.content != content.content {
                    *attempt = RolloutAttempt {
                        generation,
                        content: content.content.clone(),
                        since: now,
                        state: RolloutState::Healthy,
                    };
                }
                self.healthy = Some(content);
                RolloutState::Healthy
            }
            RolloutStep::ReportFailure(obstacle) => RolloutState::Failed {
                cause,
                obstacle: obstacle.as_ref().map(ToString::to_string),
            },
            RolloutStep::RollBack => RolloutState::RollingBack { cause },
        };
        if let Some(attempt) = &mut self.attempt {
            attempt.state = state;
        }
    }

    /// Records that the checks reject the former content: the content of the spec stays installed.
    pub fn refuse(&mut self, obstacle: &RollbackObstacle) {
        if let Some(attempt) = &mut self.attempt
            && let RolloutState::RollingBack { cause } = &attempt.state
        {
            attempt.state = RolloutState::Failed {
                cause: cause.clone(),
                obstacle: Some(bounded(&obstacle.to_string(), MAX_CAUSE)),
            };
        }
    }
}

impl ObservedRollout<'_> {
    /// Returns the next step of the rollout.
    pub fn step(&self) -> RolloutStep {
        if self.is_paused {
            return RolloutStep::Keep;
        }
        let is_healthy = self.state == ContentState::Healthy;
        let attempt = self.record.of_generation(self.generation);
        let Some(attempt) = attempt.filter(|attempt| attempt.content == *self.content) else {
            // An earlier version of this project installed the content.
            let known = self.record.healthy.as_ref();
            let is_known = known.is_some_and(|known| known.content == *self.content);
            return if is_healthy && !is_known {
                RolloutStep::RecordHealthy
            } else {
                RolloutStep::Keep
            };
        };
        match attempt.state {
            RolloutState::Applying | RolloutState::Waiting | RolloutState::Failed { .. }
                if is_healthy =>
            {
                RolloutStep::RecordHealthy
            }
            RolloutState::Applying | RolloutState::Waiting => self.after_deadline(attempt.since),
            RolloutState::Healthy
            | RolloutState::Failed { .. }
            | RolloutState::RollingBack { .. }
            | RolloutState::RolledBack { .. } => RolloutStep::Keep,
        }
    }

    fn after_deadline(&self, since: i64) -> RolloutStep {
        let Ok(elapsed) = u64::try_from(self.now.saturating_sub(since)) else {
            return RolloutStep::Restart;
        };
        let left = self.deadline.saturating_sub(Duration::from_millis(elapsed));
        if !left.is_zero() {
            return RolloutStep::Wait(left);
        }
        match self.state {
            // Unknown health is never a failure.
            ContentState::Unknown | ContentState::Healthy => RolloutStep::Keep,
            ContentState::Unhealthy if !self.rolls_back => RolloutStep::ReportFailure(None),
            // The error of the installation is reported, and the installation is retried.
            ContentState::Failed if !self.rolls_back => RolloutStep::Keep,
            ContentState::Unhealthy | ContentState::Failed => match self.obstacle() {
                Some(obstacle) => RolloutStep::ReportFailure(Some(obstacle)),
                None => RolloutStep::RollBack,
            },
        }
    }

    /// Returns the reason why the former content cannot be installed again, before any check.
    fn obstacle(&self) -> Option<RollbackObstacle> {
        let Some(former) = &self.record.healthy else {
            return Some(RollbackObstacle::NoFormerContent);
        };
        if former.content == *self.content {
            return Some(RollbackObstacle::SameContent);
        }
        match &former.request {
            None => Some(RollbackObstacle::NotRecorded),
            Some(request) if request.class != self.class => Some(RollbackObstacle::OtherClass {
                former: request.class.clone(),
            }),
            Some(_) => None,
        }
    }
}
