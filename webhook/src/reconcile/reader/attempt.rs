//! Attempts to weigh and parse the content of one object. To weigh content means to compute the
//! memory that parsing needs. A record on disk exists while an attempt runs (`crate::attempts`). If
//! the record still exists after a restart, the attempt may have terminated the process.

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

/// Attempts to weigh and parse content for one version of an object.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct ContentAttempts {
    /// Keys of the records for the steps weighing and parsing. `None` if the attempts need no
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

/// An attempt to weigh or parse content that has not begun.
#[derive(Debug)]
pub(super) struct Attempt {
    record: Option<(Arc<Attempts>, AttemptKey)>,
    reason: &'static str,
}

impl ContentAttempts {
    /// Prepares attempts for `content`. Fails if the next attempt is delayed, because the process
    /// ended during earlier attempts. `version` is the version of the object: uid and spec digest
    /// of a Bundle, or uid and generation of a BundleDeployment.
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

    /// Returns attempts without records. Used for content that this version of the program has
    /// already parsed for the same target. Parsing such content does not terminate the process.
    pub(super) fn without_records(requester: &str, reason: &'static str) -> Self {
        Self {
            keys: None,
            requester: requester.to_owned(),
            is_alone: false,
            reason,
        }
    }

    /// Returns the key that identifies the requester in limits.
    pub(super) fn key(&self) -> String {
        requester_key(&self.requester)
    }

    /// Reserves the whole memory for content if this attempt must run without other content in
    /// memory. Returns `None` otherwise.
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

    /// Reserves `weight` bytes of the memory for content. If this attempt must run without other
    /// content in memory, reserves the whole memory for content.
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
    /// Runs `work`, and returns its result. If a record is needed, the record exists as long as
    /// `work` runs.
    pub(super) fn run<T>(self, work: impl FnOnce() -> T) -> Result<T, ReconcileError> {
        let running = self.record.map(|(records, key)| records.begin(key));
        let running = running.transpose();
        let _running = running.map_err(|error| unstorable(&error, self.reason))?;
        Ok(work())
    }
}

/// Returns the error for content that is not parsed now, because the process ended during earlier
/// attempts. `left` is the time until the next attempt.
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
