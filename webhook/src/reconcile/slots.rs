//! Limits for concurrent reconciles. A reconcile can wait for objects that its requester blocks, so
//! no requester can hold all slots.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::budget::{Cap, Pool, Share};

/// Concurrent reconciles of one kind.
const RECONCILE_SLOTS: u64 = 8;
/// Concurrent reconciles of one kind for one requester.
const SLOTS_PER_REQUESTER: u64 = 6;
/// Objects of one kind that are read and sealed at the same time. Each needs two requests.
const CONCURRENT_READS: usize = 8;

/// The slots of one process for one kind of object.
#[derive(Debug)]
pub(in crate::reconcile) struct Slots {
    reconciles: Pool,
    reads: Semaphore,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            reconciles: Pool::new(RECONCILE_SLOTS),
            reads: Semaphore::new(CONCURRENT_READS),
        }
    }
}

impl Slots {
    /// Waits for a slot for an object of `requester`. Requesters with the fewest slots come first.
    pub(in crate::reconcile) async fn acquire(&self, requester: &str) -> Option<Share> {
        let cap = Cap {
            key: requester.to_owned(),
            most: SLOTS_PER_REQUESTER,
        };
        // The request for one slot never exceeds the capacity.
        self.reconciles.take(1, vec![cap]).await.ok()
    }

    /// Waits until another object can be read.
    pub(in crate::reconcile) async fn acquire_read(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.reads.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn one_requester_leaves_places_to_others() {
        let slots = Slots::default();
        let of_ana: Vec<_> = (0..RECONCILE_SLOTS)
            .map(|_| slots.acquire("ana").now_or_never().flatten())
            .collect();
        let held = of_ana.iter().filter(|slot| slot.is_some()).count();
        assert_eq!(held as u64, SLOTS_PER_REQUESTER);
        assert!(slots.acquire("ben").now_or_never().flatten().is_some());
        drop(of_ana);
        assert!(slots.acquire("ana").now_or_never().flatten().is_some());
    }
}
