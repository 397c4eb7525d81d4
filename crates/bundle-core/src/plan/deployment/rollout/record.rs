//! Record of the rollout in the inventory: the content that was healthy last, and the rollout of
//! the content of the spec. Decisions only use this record, because users can write the status.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ContentState, ObservedRollout, RollbackObstacle, RolloutStep};
use crate::json;
use crate::plan::conditions::bounded;
use crate::plan::revisions::{config_digest, spec_with_config};
use crate::review::{PartRequesters, Requester};

/// Maximum size of the recorded template and configuration of one content together, as JSON in
/// bytes.
pub const MAX_RETURN_BYTES: usize = 16 << 10;
/// Maximum length of a recorded cause, in bytes.
const MAX_CAUSE: usize = 1024;

/// Rollout of one BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutRecord {
    /// Content that was healthy last. An automatic rollback installs this content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<HealthyContent>,
    /// Latest rollout of content that a spec requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<RolloutAttempt>,
}

/// Generation and digest of the spec of a BundleDeployment. Each rollout belongs to one spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutSpec<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    /// Digest of the spec without `paused`
    /// ([`crate::review::CheckedDeploymentSpec::digest`]).
    pub digest: &'a str,
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
    /// Requesters of template and configuration, the requester of the template first, without
    /// groups and extra attributes. The list is empty in records of earlier versions of this
    /// project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<Requester>,
    /// Fields of the spec that requested the content; `None` if these fields exceed
    /// [`MAX_RETURN_BYTES`].
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
    /// `spec.config`; null without a configuration.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

impl ContentRequest {
    /// Returns the fields of `spec` that request content.
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
        json::length(&self.template) + json::length(&self.config)
    }

    /// Returns `spec` with the template and the configuration of this request. All other settings
    /// stay unchanged.
    pub fn applied_to(&self, spec: &Value) -> Value {
        let mut spec = spec_with_config(spec, &self.config);
        if let Some(fields) = spec.as_object_mut() {
            fields.insert("template".to_owned(), self.template.clone());
        }
        spec
    }
}

impl HealthyContent {
    /// Returns the record of `content`, which is healthy. `request` contains the fields of the spec
    /// that requested the content. `requesters` are the requesters of that spec.
    pub fn new(
        content: RolloutContent,
        bundle_uid: &str,
        request: ContentRequest,
        requesters: &PartRequesters,
    ) -> Self {
        Self {
            content,
            bundle_uid: bundle_uid.to_owned(),
            requesters: identities(requesters),
            request: (request.bytes() <= MAX_RETURN_BYTES).then_some(request),
        }
    }

    /// Returns the obstacle to an automatic rollback to this content, if one of its requesters is
    /// not a requester of the content of the spec. Such a user requested no part of the current
    /// spec, so the pod must not install content in the name of this user.
    ///
    /// Without an obstacle, the checks of the installation need the permissions of all requesters
    /// of this content.
    pub fn requester_obstacle(&self, spec: &PartRequesters) -> Option<RollbackObstacle> {
        if self.requesters.is_empty() {
            return Some(RollbackObstacle::RequestersNotRecorded);
        }
        let departed = spec.departed(&self.requesters).into_iter();
        let former: Vec<String> = departed.map(|requester| requester.user.clone()).collect();
        (!former.is_empty()).then_some(RollbackObstacle::OtherRequester { former })
    }
}

/// Returns the requesters of template and configuration as [`HealthyContent`] records them.
pub(super) fn identities(requesters: &PartRequesters) -> Vec<Requester> {
    let requesters = requesters.template_and_config().into_iter();
    requesters.map(Requester::identity).collect()
}

/// Rollout of the content of one spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutAttempt {
    /// `metadata.generation` of the spec. [`RolloutRecord::assign`] updates this field.
    pub generation: i64,
    /// Digest of the spec without `paused`; empty in records of earlier versions of this project.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spec: String,
    /// Content of the spec.
    pub content: RolloutContent,
    /// Start of the time until the deadline, in milliseconds since 1970.
    pub since: i64,
    /// State of the rollout.
    pub state: RolloutState,
}

/// State of a rollout. The *former content* is the content that was healthy before the rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum RolloutState {
    /// The apply of the objects has begun and is not complete. The time until the deadline starts
    /// with the first attempt.
    #[default]
    Applying,
    /// All objects are applied. The time until the deadline starts at the end of the installation.
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

    /// Returns the rollout of this generation of the spec; `None` if no rollout of this generation
    /// is recorded.
    pub fn of_generation(&self, generation: i64) -> Option<&RolloutAttempt> {
        let attempt = self.attempt.as_ref();
        attempt.filter(|attempt| attempt.generation == generation)
    }

    /// Returns the former content that is installed in place of the content of this generation of
    /// the spec; `None` if no former content replaces the content of the spec.
    pub fn replacement(&self, generation: i64) -> Option<&HealthyContent> {
        let attempt = self.of_generation(generation)?;
        match attempt.state {
            RolloutState::RollingBack { .. } | RolloutState::RolledBack { .. } => {
                self.healthy.as_ref()
            }
            _ => None,
        }
    }

    /// Assigns the recorded rollout to the current spec of the BundleDeployment. If the recorded
    /// rollout belongs to a spec with another digest, this function removes the record of the
    /// rollout.
    ///
    /// A write that sets or clears `spec.paused`, or that changes the text of the spec but not its
    /// meaning, starts no other rollout. The recorded rollout and its result then belong to the new
    /// generation. If the rollout has no result yet, the time until the deadline starts again at
    /// `now`.
    pub(in crate::plan) fn assign(&mut self, spec: RolloutSpec<'_>, now: i64) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        if attempt.generation == spec.generation {
            return;
        }
        if attempt.spec != spec.digest {
            self.attempt = None;
            return;
        }
        attempt.generation = spec.generation;
        if matches!(
            attempt.state,
            RolloutState::Applying | RolloutState::Waiting
        ) {
            attempt.since = now;
        }
    }

    /// Records that the rollout of `content` begins. The caller calls this function before the
    /// first object is applied. A recorded rollout of an earlier spec is replaced. A repeated call
    /// for the same content has no effect. A call also has no effect while the former content
    /// replaces the content of this generation.
    pub fn begin(&mut self, spec: RolloutSpec<'_>, content: &RolloutContent, now: i64) {
        if self.replacement(spec.generation).is_some() {
            return;
        }
        let same = self.of_generation(spec.generation);
        if same.is_none_or(|attempt| attempt.content != *content) {
            self.attempt = Some(RolloutAttempt {
                generation: spec.generation,
                spec: spec.digest.to_owned(),
                content: content.clone(),
                since: now,
                state: RolloutState::Applying,
            });
        }
    }

    /// Records that all objects of `content` are applied.
    pub fn complete(&mut self, spec: RolloutSpec<'_>, content: &RolloutContent, now: i64) {
        let is_former = self
            .replacement(spec.generation)
            .is_some_and(|former| former.content == *content);
        self.begin(spec, content, now);
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
        (spec, now): (RolloutSpec<'_>, i64),
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
                if attempt.generation != spec.generation || attempt.content != content.content {
                    *attempt = RolloutAttempt {
                        generation: spec.generation,
                        spec: spec.digest.to_owned(),
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
                obstacle: obstacle
                    .as_ref()
                    .map(|obstacle| bounded(&obstacle.to_string(), MAX_CAUSE)),
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
            return if is_healthy && !self.is_recorded() {
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
            // Other users have become the requesters, or an earlier version of this project
            // recorded no requesters.
            RolloutState::Healthy if is_healthy && !self.is_recorded() => {
                RolloutStep::RecordHealthy
            }
            RolloutState::Applying | RolloutState::Waiting => self.after_deadline(attempt.since),
            RolloutState::Healthy
            | RolloutState::Failed { .. }
            | RolloutState::RollingBack { .. }
            | RolloutState::RolledBack { .. } => RolloutStep::Keep,
        }
    }

    /// Returns true if the content of the spec is recorded as the healthy content, with its
    /// requesters.
    fn is_recorded(&self) -> bool {
        self.record.healthy.as_ref().is_some_and(|healthy| {
            healthy.content == *self.content && healthy.requesters == identities(self.requesters)
        })
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

    /// Returns the reason why the former content cannot be installed again, as far as the record
    /// shows such a reason.
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
            Some(_) => former.requester_obstacle(self.requesters),
        }
    }
}
