//! Room in the caller's memory for what registries answer: asked for before the bytes of an answer are held.
//! Not here: how much there is; the size limits of single answers (limits).

use std::fmt;

use futures::future::{BoxFuture, FutureExt as _, ready};

use super::Reason;

/// How often the bytes of a document are there: as they came, and as they were read.
pub(super) const FORMS: u64 = 2;
/// Bytes of an answer of unknown length that are received before room for the longest is asked for.
pub(super) const SHORT: u64 = 64 << 10;

/// Whoever has the memory.
pub trait Room: fmt::Debug + Send + Sync {
    /// Waits until so many more bytes may be held, beside those that were taken before; false where they may not. All is given back with the room itself.
    fn take(&self, bytes: u64) -> BoxFuture<'_, bool>;
}

/// An error where there is no room for so many more bytes.
pub(super) async fn take(room: &dyn Room, bytes: u64) -> Result<(), Reason> {
    if room.take(bytes).await {
        Ok(())
    } else {
        Err(Reason::NoRoom)
    }
}

/// As much as is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Endless;

impl Room for Endless {
    fn take(&self, _bytes: u64) -> BoxFuture<'_, bool> {
        ready(true).boxed()
    }
}
