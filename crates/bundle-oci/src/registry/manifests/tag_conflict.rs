//! Concurrent writes to one tag. A registry has no compare-and-swap. Therefore each writer reads
//! the tag again after its write, and repeats the write until the tag contains its own entry.

use std::time::Duration;

use bundle_core::reference::Digest;

/// Maximum number of writes of one tag. After that, the push fails, because other clients keep
/// overwriting the tag.
pub(in crate::registry) const MAX_WRITES: u32 = 6;
/// Time between a write and the next read of the tag. Another client that has read the tag before
/// finishes its write in this time.
const WRITE_PAUSE: Duration = Duration::from_millis(150);

/// Waits after `own` was written. Each concurrent writer waits for a different time, so that one of
/// them writes last.
pub(in crate::registry) async fn wait_after_write(own: &Digest, attempt: u32) {
    let share = own.hex().as_bytes().get(attempt as usize);
    let share = share.map_or(0, |byte| u32::from(*byte) % 16);
    tokio::time::sleep(WRITE_PAUSE + Duration::from_millis(10) * share * attempt).await;
}
