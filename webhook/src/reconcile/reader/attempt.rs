//! The attempts to weigh and parse one content for one object. An attempt is recorded while it runs
//! (`crate::attempts`).

use std::sync::Arc;

use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::plan::bundle::attempts::{AttemptDecision, AttemptKey, MAX_ENDS, ParseStep};

use super::{memory, unstorable};
use crate::attempts::Attempts;
use crate::budget::Share;
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// The attempts for one version of an object.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct ContentAttempts {
    weigh: AttemptKey,
    parse: AttemptKey,
    requester: String,
    /// True if no other content must be in memory.
    is_alone: bool,
    /// Reason of the condition that reports a failure.
    pub(super) reason: &'static str,
}

/// One attempt that has not begun.
#[derive(Debug)]
pub(super) struct Attempt {
    records: Arc<Attempts>,
    key: AttemptKey,
    reason: &'static str,
}

impl ContentAttempts {
    /// Fails if the content is not tried again. `version` is uid and generation of the object.
    pub(in crate::reconcile) fn new(
        ctx: &Context,
        (version, requester): (&str, &str),
        content: &ContentId,
        reason: &'static str,
    ) -> Result<Self, ReconcileError> {
        let key = |step| AttemptKey::new(env!("CARGO_PKG_VERSION"), version, content, step);
        let (weigh, parse) = (key(ParseStep::Weigh), key(ParseStep::Parse));
        let records = &ctx.shared.attempts;
        let decisions = [records.decide(&weigh), records.decide(&parse)];
        if decisions.contains(&AttemptDecision::Reject) {
            return Err(ReconcileError::new(
                codes::install::PROCESS_ENDED,
                reason,
                format!(
                    "bundle-webhook ended {MAX_ENDS} times while it parsed content {}, and does not parse it again: correct the content, or delete the object and create it again for new attempts",
                    content.digest()
                ),
                RetryPolicy::OnChange,
            ));
        }
        Ok(Self {
            weigh,
            parse,
            requester: requester.to_owned(),
            is_alone: decisions.contains(&AttemptDecision::TryAlone),
            reason,
        })
    }

    /// Reserves all memory for content, if no other content must be in memory.
    pub(super) async fn exclusive_memory(
        &self,
        ctx: &Context,
    ) -> Result<Option<Share>, ReconcileError> {
        if !self.is_alone {
            return Ok(None);
        }
        self.memory(ctx, 0).await.map(Some)
    }

    /// Reserves the memory that the content needs: all memory for content, if no other content must
    /// be in memory.
    pub(super) async fn memory(&self, ctx: &Context, weight: u64) -> Result<Share, ReconcileError> {
        let capacity = ctx.shared.budget.content.capacity();
        let weight = if self.is_alone {
            weight.max(capacity)
        } else {
            weight
        };
        memory(ctx, &self.requester, weight, self.reason).await
    }

    pub(super) fn attempt(&self, ctx: &Context, step: ParseStep) -> Attempt {
        let key = match step {
            ParseStep::Weigh => &self.weigh,
            ParseStep::Parse => &self.parse,
        };
        Attempt {
            records: ctx.shared.attempts.clone(),
            key: key.clone(),
            reason: self.reason,
        }
    }
}

impl Attempt {
    /// Runs `work` while a record of it exists.
    pub(super) fn run<T>(self, work: impl FnOnce() -> T) -> Result<T, ReconcileError> {
        let running = self.records.begin(self.key);
        let _running = running.map_err(|error| unstorable(&error, self.reason))?;
        Ok(work())
    }
}
