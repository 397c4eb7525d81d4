//! Concurrent writes to one tag. A registry has no compare-and-swap, so each writer reads the tag
//! again after writing, until it contains its own entry.

use std::time::Duration;

use bundle_core::reference::Digest;

/// Maximum number of writes of one tag. After that, the push fails, because other clients keep
/// overwriting the tag.
pub(in crate::registry) const MAX_WRITES: u32 = 6;
/// Time between a write and the next read of the tag. It is long enough for the write of another
/// client that has read the tag before.
const WRITE_PAUSE: Duration = Duration::from_millis(150);

/// Waits after `own` was written. Concurrent writers wait for different times, so that one writer
/// is the last.
pub(in crate::registry) async fn wait_after_write(own: &Digest, attempt: u32) {
    let share = own.hex().as_bytes().get(attempt as usize);
    let share = share.map_or(0, |byte| u32::from(*byte) % 16);
    tokio::time::sleep(WRITE_PAUSE + Duration::from_millis(10) * share * attempt).await;
}
