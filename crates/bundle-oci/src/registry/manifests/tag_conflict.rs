//! Concurrent writes of one tag. Registries have no compare-and-swap. Therefore a client reads the
//! tag again after its write, and repeats the write until the content of the tag includes its
//! entry.

use std::time::Duration;

use bundle_core::reference::Digest;

use crate::registry::retry::TAG_WRITE_PAUSE;

/// Waits before the tag is read again. The time depends on the digest `written`, so that concurrent
/// writers wait for different times and one of them writes last.
pub(in crate::registry) async fn wait_after_write(written: &Digest, attempt: u32) {
    let share = written.hex().as_bytes().get(attempt as usize);
    let share = share.map_or(0, |byte| u32::from(*byte) % 16);
    tokio::time::sleep(TAG_WRITE_PAUSE + Duration::from_millis(10) * share * attempt).await;
}
