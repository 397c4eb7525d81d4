//! Memory of registry responses in image lookups of reviews. A requester can name any image, so its
//! size is untrusted. `bundle_oci::registry` reserves the memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bundle_oci::registry::MemoryReservation;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::{Cap, Pool, Share, wait_for_share};

/// Size of a lookup that needs no share, in bytes: manifest and signatures of an ordinary image.
const SMALL_LOOKUP: u64 = 256 << 10;

/// The memory of one image lookup, in the pool of reviews. It is released on drop.
#[derive(Debug)]
pub struct LookupMemory {
    pool: Pool,
    requester: String,
    timeout: Duration,
    held: Mutex<Held>,
    refused: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    shares: Vec<Share>,
}

impl LookupMemory {
    /// Creates the memory of a lookup of `requester`. Each share is awaited for at most `timeout`.
    pub fn new(pool: &Pool, requester: &str, timeout: Duration) -> Self {
        Self {
            pool: pool.clone(),
            requester: requester.to_owned(),
            timeout,
            held: Mutex::default(),
            refused: AtomicBool::new(false),
        }
    }

    /// Returns true after a response was rejected for lack of memory.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the limits of a lookup: half of the pool for one requester, and three quarters for
    /// all lookups, so that a quarter remains for the objects of reviews.
    fn caps(&self) -> Vec<Cap> {
        let mut caps = super::Budget::half(&self.pool, &self.requester);
        caps.push(Cap {
            key: "looks at images".to_owned(),
            most: self.pool.capacity() / 4 * 3,
        });
        caps
    }
}

impl MemoryReservation for LookupMemory {
    fn grow(&self, bytes: u64) -> BoxFuture<'_, bool> {
        async move {
            let mut held = self.held.lock().await;
            held.bytes = held.bytes.saturating_add(bytes);
            if held.bytes <= SMALL_LOOKUP {
                return true;
            }
            let share = self.pool.take(bytes, self.caps());
            if let Some(Ok(share)) = wait_for_share(self.timeout, share).await {
                held.shares.push(share);
                return true;
            }
            self.refused.store(true, Ordering::Relaxed);
            false
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(pool: &Pool, requester: &str) -> LookupMemory {
        LookupMemory::new(pool, requester, Duration::from_secs(2))
    }

    #[tokio::test(start_paused = true)]
    async fn large_responses_of_one_requester_wait_and_those_of_others_do_not() {
        let pool = Pool::new(16 * MIB);
        let first = look(&pool, "ana");
        assert!(first.grow(8 * MIB).await);
        let second = look(&pool, "ana");
        assert!(!second.grow(8 * MIB).await);
        assert!(second.is_refused() && !first.is_refused());
        // Ordinary images need no share.
        assert!(look(&pool, "ana").grow(SMALL_LOOKUP).await);
        assert!(look(&pool, "bob").grow(4 * MIB).await);
        drop(first);
        assert_eq!(pool.used(), 0);
        assert!(second.grow(8 * MIB).await);
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_leave_memory_for_the_objects_of_reviews() {
        let pool = Pool::new(16 * MIB);
        let looks = ["ana", "bob"].map(|name| look(&pool, name));
        assert!(looks[0].grow(6 * MIB).await);
        assert!(looks[1].grow(6 * MIB).await);
        assert!(!look(&pool, "eve").grow(MIB).await);
        assert!(pool.take(4 * MIB, Vec::new()).now_or_never().is_some());
    }
}
