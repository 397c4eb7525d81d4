//! Limits for concurrent reconciles, comparisons of dry runs, reads of managed fields, and
//! validations of custom resources. Slow objects, webhooks or registries of a requester can block a
//! slot for a long time. Therefore the slots of each requester are limited, so that a few
//! requesters cannot block all other requesters.

use std::time::Duration;

use bundle_core::plan::crd_upgrade::existing::ValidationLimits;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::budget::{Budget, Pool, Share};

/// Maximum number of concurrent reconciles of one kind. One requester can use half of the slots,
/// and two requesters together can use three quarters.
const RECONCILE_SLOTS: u64 = 8;
/// Maximum number of objects of one kind that are read and sealed at the same time. Each object
/// needs two requests to the API server. These requests are fast: the kinds have only one version,
/// so no conversion webhook is called.
const CONCURRENT_READS: usize = 8;
/// Maximum number of concurrent comparisons of dry runs. Each comparison needs memory for the JSON
/// of up to two objects. One requester can use half of the slots.
const COMPARISON_SLOTS: u64 = 4;
/// Maximum number of objects whose complete managed fields are in memory at the same time. The
/// managed fields of one object can need several MiB. One requester can use half of the slots.
const ENTRY_SLOTS: u64 = 4;
/// Maximum time that a validation of custom resources waits for its slot. Waiting requesters get
/// the slot in turn. Therefore a validation starts within this time if at most two other requesters
/// validate repeatedly.
const VALIDATION_WAIT_LIMIT: Duration = ValidationLimits::DEFAULT.time.saturating_mul(3);

/// The slots for reconciles of one kind of object.
#[derive(Debug)]
pub(in crate::reconcile) struct Slots {
    reconciles: Pool,
    reads: Semaphore,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            reconciles: Pool::divided(RECONCILE_SLOTS),
            reads: Semaphore::new(CONCURRENT_READS),
        }
    }
}

impl Slots {
    /// Waits for a slot to reconcile an object of `requester`. Requesters with the fewest slots
    /// have priority. Never returns `None`.
    pub(in crate::reconcile) async fn acquire(&self, requester: &str) -> Option<Share> {
        slot(&self.reconciles, requester).await
    }

    /// Waits until fewer than [`CONCURRENT_READS`] objects are being read. The read ends when the
    /// permit is dropped. Never returns `None`.
    pub(in crate::reconcile) async fn acquire_read(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.reads.acquire().await.ok()
    }
}

/// The slots for comparisons of dry runs, and for reads of complete managed fields. Both need
/// memory for large objects. Clones of this value use the same slots.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct ApplySlots {
    comparisons: Pool,
    entries: Pool,
}

impl Default for ApplySlots {
    fn default() -> Self {
        Self {
            comparisons: Pool::divided(COMPARISON_SLOTS),
            entries: Pool::divided(ENTRY_SLOTS),
        }
    }
}

impl ApplySlots {
    /// Waits for a slot for a comparison: of two dry runs, or of an object and the dry run of its
    /// release. The slot counts towards the limit of `requester`. Never returns `None`.
    pub(in crate::reconcile) async fn acquire_comparison(&self, requester: &str) -> Option<Share> {
        slot(&self.comparisons, requester).await
    }

    /// Waits for a slot to read complete managed fields. The slot counts towards the limit of
    /// `requester`. Never returns `None`.
    pub(in crate::reconcile) async fn acquire_entries(&self, requester: &str) -> Option<Share> {
        slot(&self.entries, requester).await
    }
}

/// The only slot for validations of custom resources. Only one validation runs at a time, to limit
/// the memory for pages of custom resources.
#[derive(Debug)]
pub(in crate::reconcile) struct ValidationSlot(Pool);

impl Default for ValidationSlot {
    fn default() -> Self {
        Self(Pool::new(1))
    }
}

impl ValidationSlot {
    /// Waits for the slot for a validation of `requester`. If several requesters wait, they get the
    /// slot in turn. Returns `None` after [`VALIDATION_WAIT_LIMIT`].
    pub(in crate::reconcile) async fn acquire(&self, requester: &str) -> Option<Share> {
        let granted = slot(&self.0, requester);
        let granted = tokio::time::timeout(VALIDATION_WAIT_LIMIT, granted).await;
        granted.ok().flatten()
    }
}

/// Waits for a slot in `pool` for `requester`. Requesters with the fewest slots have priority.
/// Never returns `None`.
async fn slot(pool: &Pool, requester: &str) -> Option<Share> {
    let caps = Budget::part(pool, requester, 1);
    // `take` fails only if a request exceeds the capacity, and one slot never does.
    pool.take(1, caps).await.ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn three_requesters_leave_slots_to_a_fourth() {
        let slots = Slots::default();
        let acquire = |requester: &str| slots.acquire(requester).now_or_never().flatten();
        let mut held = Vec::new();
        for (requester, most) in [("ana", 4), ("ben", 2), ("eve", 1)] {
            let of_requester: Vec<_> = (0..RECONCILE_SLOTS)
                .map_while(|_| acquire(requester))
                .collect();
            assert_eq!(of_requester.len(), most, "{requester}");
            held.push(of_requester);
        }
        assert!(acquire("mia").is_some());
        held.remove(0);
        assert!(acquire("ana").is_some());
    }

    #[tokio::test]
    async fn two_requesters_leave_comparisons_and_entries_to_a_third() {
        let slots = ApplySlots::default();
        let compare = |name: &str| slots.acquire_comparison(name).now_or_never().flatten();
        let read = |name: &str| slots.acquire_entries(name).now_or_never().flatten();
        let held: Vec<_> = ["ana", "ana", "ana", "ben", "ben"]
            .map(|name| (compare(name), read(name)))
            .into();
        let granted: Vec<_> = held
            .iter()
            .map(|(comparison, entries)| (comparison.is_some(), entries.is_some()))
            .collect();
        let expected = [true, true, false, true, false].map(|granted| (granted, granted));
        assert_eq!(granted, expected);
        assert!(compare("eve").is_some() && read("eve").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn validation_waits_for_one_validation_of_each_other_requester() {
        let slot = &ValidationSlot::default();
        // Each validation lasts as long as its time limit allows.
        let validate = |requester: &'static str| async move {
            let held = slot.acquire(requester).await;
            tokio::time::sleep(ValidationLimits::DEFAULT.time).await;
            held.is_some()
        };
        let requesters = ["eve", "eve", "eve", "eve", "ben", "ben", "ana"];
        let validated = futures::future::join_all(requesters.map(validate)).await;
        let of = |requester: &str| {
            let results = requesters.iter().zip(&validated);
            let granted = results.filter(|(name, validated)| **name == requester && **validated);
            granted.count()
        };
        assert_eq!((of("ana"), of("ben")), (1, 1));
        assert!(of("eve") < 4);
    }
}
