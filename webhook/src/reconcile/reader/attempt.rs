//! The attempts to weigh and parse one content for one object. To weigh content means to compute
//! the memory that parsing needs. An attempt is recorded while it runs (`crate::attempts`).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::plan::bundle::attempts::{
    AttemptDecision, AttemptKey, INTERRUPTIONS_BEFORE_PAUSE, ParseStep,
};
use bundle_core::reference::Digest;

use super::{all_memory, memory, unstorable};
use crate::attempts::Attempts;
use crate::budget::{Share, requester_key};
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// The attempts for one version of an object.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct ContentAttempts {
    /// Keys of the records of the two steps, weighing and parsing. `None` if the attempts need no
    /// record.
    keys: Option<StepKeys>,
    requester: String,
    /// True if no other content may be in memory during the attempt.
    is_alone: bool,
    /// Reason of the condition that reports a failure.
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone)]
struct StepKeys {
    weigh: AttemptKey,
    parse: AttemptKey,
}

/// One attempt that has not begun.
#[derive(Debug)]
pub(super) struct Attempt {
    record: Option<(Arc<Attempts>, AttemptKey)>,
    reason: &'static str,
}

impl ContentAttempts {
    /// Fails if the content must not be parsed now. `version` is the version of the object: uid and
    /// digest of the spec of a Bundle, or uid and generation of a BundleDeployment.
    pub(in crate::reconcile) fn new(
        ctx: &Context,
        (version, requester): (&str, &str),
        content: &ContentId,
        reason: &'static str,
    ) -> Result<Self, ReconcileError> {
        let key = |step| AttemptKey::new(env!("CARGO_PKG_VERSION"), version, content, step);
        let (weigh, parse) = (key(ParseStep::Weigh), key(ParseStep::Parse));
        let records = &ctx.shared.attempts;
        let now = SystemTime::now();
        let decisions = [records.decide(&weigh, now), records.decide(&parse, now)];
        for decision in decisions {
            if let AttemptDecision::Wait(left) = decision {
                return Err(process_ended(content.digest(), left, reason));
            }
        }
        Ok(Self {
            keys: Some(StepKeys { weigh, parse }),
            requester: requester.to_owned(),
            is_alone: decisions.contains(&AttemptDecision::TryAlone),
            reason,
        })
    }

    /// Returns attempts without records, for content that this version of the program has already
    /// parsed for the same target. If the process is terminated later, this content is not the
    /// cause.
    pub(super) fn without_records(requester: &str, reason: &'static str) -> Self {
        Self {
            keys: None,
            requester: requester.to_owned(),
            is_alone: false,
            reason,
        }
    }

    /// Returns the key of the requester in the limits.
    pub(super) fn key(&self) -> String {
        requester_key(&self.requester)
    }

    /// Reserves all memory for content if this attempt must run without other content in memory.
    /// Returns `None` otherwise.
    pub(super) async fn exclusive_memory(
        &self,
        ctx: &Context,
    ) -> Result<Option<Share>, ReconcileError> {
        if !self.is_alone {
            return Ok(None);
        }
        let share = all_memory(ctx, &self.requester, self.reason).await?;
        Ok(Some(share))
    }

    /// Reserves the memory that the content needs. If this attempt must run without other content
    /// in memory, reserves all memory for content.
    pub(super) async fn memory(&self, ctx: &Context, weight: u64) -> Result<Share, ReconcileError> {
        let is_too_large = weight > ctx.shared.budget.largest_content();
        if self.is_alone && !is_too_large {
            return all_memory(ctx, &self.requester, self.reason).await;
        }
        memory(ctx, &self.requester, weight, self.reason).await
    }

    pub(super) fn attempt(&self, ctx: &Context, step: ParseStep) -> Attempt {
        let key = self.keys.as_ref().map(|keys| match step {
            ParseStep::Weigh => keys.weigh.clone(),
            ParseStep::Parse => keys.parse.clone(),
        });
        Attempt {
            record: key.map(|key| (ctx.shared.attempts.clone(), key)),
            reason: self.reason,
        }
    }
}

impl Attempt {
    /// Runs `work`. If a record is needed, the record exists while `work` runs.
    pub(super) fn run<T>(self, work: impl FnOnce() -> T) -> Result<T, ReconcileError> {
        let running = self.record.map(|(records, key)| records.begin(key));
        let running = running.transpose();
        let _running = running.map_err(|error| unstorable(&error, self.reason))?;
        Ok(work())
    }
}

/// Returns the error for content with `digest`, because the process ended during an earlier
/// attempt. `left` is the time until the content is parsed again.
pub(in crate::reconcile) fn process_ended(
    digest: &Digest,
    left: Duration,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::PROCESS_ENDED,
        reason,
        format!(
            "bundle-webhook was terminated at least {INTERRUPTIONS_BEFORE_PAUSE} times while it parsed content {digest}, so the next attempt is delayed: correct the content, or create the object again to start an attempt now"
        ),
        RetryPolicy::At(left),
    )
}
