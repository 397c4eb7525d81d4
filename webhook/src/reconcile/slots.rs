//! Places among the reconciles that go on at a time. A reconcile may wait for objects that its requester holds up, so one requester never takes all of them.
//! Not here: what a reconcile does.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::budget::{Cap, Pool, Share};

/// Reconciles of one kind at a time.
const SLOTS: u64 = 8;
/// Most of them for one requester.
const PER_REQUESTER: u64 = 6;
/// Objects of one kind that are read and sealed at a time. Each takes two requests.
const READS: usize = 8;

/// The places of one process for one kind: BundleDeployments or Bundles.
#[derive(Debug)]
pub(in crate::reconcile) struct Slots {
    reconciles: Pool,
    reads: Semaphore,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            reconciles: Pool::new(SLOTS),
            reads: Semaphore::new(READS),
        }
    }
}

impl Slots {
    /// Waits for a place for an object that `requester` asked for. Requesters with the fewest places come first.
    pub(in crate::reconcile) async fn of(&self, requester: &str) -> Option<Share> {
        let cap = Cap {
            key: requester.to_owned(),
            most: PER_REQUESTER,
        };
        // One place is never more than there is.
        self.reconciles.take(1, vec![cap]).await.ok()
    }

    /// Waits until another object may be read.
    pub(in crate::reconcile) async fn read(&self) -> Option<SemaphorePermit<'_>> {
        // Nobody closes the semaphore.
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
        let of_ana: Vec<_> = (0..SLOTS)
            .map(|_| slots.of("ana").now_or_never().flatten())
            .collect();
        let held = of_ana.iter().filter(|slot| slot.is_some()).count();
        assert_eq!(held as u64, PER_REQUESTER);
        assert!(slots.of("ben").now_or_never().flatten().is_some());
        drop(of_ana);
        assert!(slots.of("ana").now_or_never().flatten().is_some());
    }
}
