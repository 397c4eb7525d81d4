//! Memory reservations. A client reserves memory from the limit of its caller before it stores the
//! bytes of a response.

use std::fmt;

use futures::future::{BoxFuture, FutureExt as _, ready};

use super::RegistryErrorReason;

/// Memory that is reserved for a document, as a multiple of its length: the bytes, and a parsed
/// form of the same size. A larger parsed form is reserved in addition.
pub(super) const COPIES_IN_MEMORY: u64 = 2;
/// Number of bytes that are reserved first for a response of unknown length. If the response has
/// more bytes, memory for the maximum length is reserved.
pub(super) const FIRST_RESERVATION_BYTES: u64 = 64 << 10;

/// Memory that is reserved for the responses of one lookup. The memory is released when this value
/// is dropped.
pub trait MemoryReservation: fmt::Debug + Send + Sync {
    /// Waits until `bytes` further bytes can be reserved. Returns `false` if these bytes would
    /// exceed the limit.
    fn grow(&self, bytes: u64) -> BoxFuture<'_, bool>;
}

/// Reserves `bytes` more bytes. Returns an error if these bytes would exceed the limit.
pub(super) async fn reserve(
    memory: &dyn MemoryReservation,
    bytes: u64,
) -> Result<(), RegistryErrorReason> {
    if memory.grow(bytes).await {
        Ok(())
    } else {
        Err(RegistryErrorReason::NoMemory)
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
