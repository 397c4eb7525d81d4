//! Concurrent writes to one tag. A registry has no compare-and-swap. Therefore each writer reads
//! the tag again after its write, and repeats the write until the tag contains its own entry.

use std::time::Duration;

use bundle_core::reference::Digest;

use crate::registry::retry::TAG_WRITE_PAUSE;

/// Waits after the entry `written` was written. Each concurrent writer waits for a different time,
/// so that one of them writes last.
pub(in crate::registry) async fn wait_after_write(written: &Digest, attempt: u32) {
    let share = written.hex().as_bytes().get(attempt as usize);
    let share = share.map_or(0, |byte| u32::from(*byte) % 16);
    tokio::time::sleep(TAG_WRITE_PAUSE + Duration::from_millis(10) * share * attempt).await;
}
