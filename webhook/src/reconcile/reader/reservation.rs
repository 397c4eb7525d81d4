//! Reservations of the memory for content.

use std::time::Duration;

use crate::budget::{self, Budget, Share};
use crate::reconcile::context::Context;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::reader::errors::{content_too_large, no_memory};

/// Maximum time that a reconcile or a download waits for memory. Then the reconcile ends and is
/// retried, and the download fails.
pub(super) const MEMORY_WAIT_LIMIT: Duration = Duration::from_secs(10);

/// Reserves `weight` bytes of the memory for content. The reservation counts towards the limit of
/// the requester.
pub(in crate::reconcile) async fn memory(
    ctx: &Context,
    requester: &str,
    weight: u64,
    reason: &'static str,
) -> Result<Share, ReconcileError> {
    let most = ctx.shared.budget.largest_content();
    if weight > most {
        return Err(content_too_large(weight, most, reason));
    }
    reserve(ctx, requester, weight, reason).await
}

/// Reserves the whole memory for content, so that no other content is in memory at the same time.
pub(super) async fn all_memory(
    ctx: &Context,
    requester: &str,
    reason: &'static str,
) -> Result<Share, ReconcileError> {
    let capacity = ctx.shared.budget.content.capacity();
    reserve(ctx, requester, capacity, reason).await
}

async fn reserve(
    ctx: &Context,
    requester: &str,
    weight: u64,
    reason: &'static str,
) -> Result<Share, ReconcileError> {
    // The callers reject a weight that exceeds the capacity, so only a timeout is expected.
    let share = wait_for_memory(ctx, requester, weight).await;
    share.ok_or_else(|| no_memory(reason))
}

/// Waits for `weight` bytes of the memory for content. Returns `None` after [`MEMORY_WAIT_LIMIT`],
/// or if `weight` exceeds this memory.
pub(in crate::reconcile) async fn wait_for_memory(
    ctx: &Context,
    requester: &str,
    weight: u64,
) -> Option<Share> {
    let pool = &ctx.shared.budget.content;
    let share = pool.take(weight, Budget::half(pool, requester));
    budget::wait_for_share(MEMORY_WAIT_LIMIT, share).await?.ok()
}
