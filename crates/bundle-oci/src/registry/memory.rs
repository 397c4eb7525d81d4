//! Memory limit of the caller, reserved before bytes of a response are held.

use std::fmt;

use futures::future::{BoxFuture, FutureExt as _, ready};

use super::Reason;

/// Number of copies of a document in memory: its bytes, and the parsed form if the parsed form
/// needs no more memory than the bytes.
pub(super) const FORMS: u64 = 2;
/// Bytes of a response of unknown length that are received before memory for the maximum is
/// reserved.
pub(super) const SHORT: u64 = 64 << 10;

/// Memory that is reserved for the responses of one lookup. The memory is released when this value
/// is dropped.
pub trait MemoryReservation: fmt::Debug + Send + Sync {
    /// Waits until `bytes` further bytes can be reserved. Returns `false` if they exceed the limit.
    fn grow(&self, bytes: u64) -> BoxFuture<'_, bool>;
}

/// Returns an error if `bytes` more exceed the limit.
pub(super) async fn reserve(memory: &dyn MemoryReservation, bytes: u64) -> Result<(), Reason> {
    if memory.grow(bytes).await {
        Ok(())
    } else {
        Err(Reason::NoMemory)
    }
}

/// Reservation without a limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unlimited;

impl MemoryReservation for Unlimited {
    fn grow(&self, _bytes: u64) -> BoxFuture<'_, bool> {
        ready(true).boxed()
    }
}
