//! Memory of the caller for answers of registries, reserved before the bytes of an answer are held.
//! Not here: how much there is; the size limits of single answers (limits).

use std::fmt;

use futures::future::{BoxFuture, FutureExt as _, ready};

use super::Reason;

/// Number of copies of a document in memory: as it came, and as it was read.
pub(super) const FORMS: u64 = 2;
/// Bytes of an answer of unknown length that are received before memory for the longest is reserved.
pub(super) const SHORT: u64 = 64 << 10;

/// Memory that is held for the answers of one look, and given back when it is dropped.
pub trait MemoryReservation: fmt::Debug + Send + Sync {
    /// Waits until `bytes` more may be held, beside those that were reserved before. Returns `false` if they may not.
    fn grow(&self, bytes: u64) -> BoxFuture<'_, bool>;
}

/// Returns an error if `bytes` more may not be held.
pub(super) async fn reserve(memory: &dyn MemoryReservation, bytes: u64) -> Result<(), Reason> {
    if memory.grow(bytes).await {
        Ok(())
    } else {
        Err(Reason::NoMemory)
    }
}

/// A reservation without a limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unlimited;

impl MemoryReservation for Unlimited {
    fn grow(&self, _bytes: u64) -> BoxFuture<'_, bool> {
        ready(true).boxed()
    }
}
