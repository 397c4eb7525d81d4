//! Tags that several write at once: a registry has no compare-and-swap, so each reads what is there again after writing, until it holds its own.
//! Not here: what is read and written (referrers, legacy).

use std::time::Duration;

use bundle_core::reference::Digest;

/// How often a tag is written before others are said to keep overwriting it.
pub(super) const TRIES: u32 = 6;
/// How long after writing it is read again: long enough for another writer who read it before us.
const SETTLE: Duration = Duration::from_millis(150);

/// Waits after writing `own`. Writers that collide wait unequally long, so that one of them is last.
pub(super) async fn settle(own: &Digest, attempt: u32) {
    let share = own.hex().as_bytes().get(attempt as usize);
    let share = share.map_or(0, |byte| u32::from(*byte) % 16);
    tokio::time::sleep(SETTLE + Duration::from_millis(10) * share * attempt).await;
}
