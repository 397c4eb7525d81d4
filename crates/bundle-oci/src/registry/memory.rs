//! Memory reservations. A client reserves memory from the limit of its caller before it stores the
//! bytes of a response.

use std::fmt;

use futures::future::{BoxFuture, FutureExt as _, ready};

use super::RegistryErrorReason;

/// Memory that is reserved for a document, as a multiple of its length: its bytes, and a parsed
/// form of the same size. If the parsed form is larger, more memory is reserved after the document
/// was received.
pub(super) const COPIES_IN_MEMORY: u64 = 2;
/// Number of bytes that are reserved first for a response of unknown length. If the response has
/// more bytes, memory for the maximum length is reserved.
pub(super) const FIRST_RESERVATION_BYTES: u64 = 64 << 10;

/// Memory that is reserved for the responses of one lookup. The memory is released when this value
/// is dropped.
pub trait MemoryReservation: fmt::Debug + Send + Sync {
    /// Reserves `bytes` more bytes, and waits until they are available. Returns `false` if the
    /// limit does not allow them.
    fn grow(&self, bytes: u64) -> BoxFuture<'_, bool>;
}

/// Reserves `bytes` more bytes. Returns an error if the limit does not allow them.
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
