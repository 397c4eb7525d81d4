//! Memory limits for the registry responses in image lookups of reviews and reconciles. A requester
//! can name any image, so sizes and durations of the responses are untrusted.
//! `bundle_oci::registry` reserves the memory.
//!
//! Reviews and reconciles use different pools, so that the lookups of one never wait for the
//! lookups of the other.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bundle_oci::registry::MemoryReservation;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::caps::address_cap;
use super::{Budget, Cap, Pool, Share, wait_for_share};

/// Memory of a lookup in addition to documents and signatures, in bytes: the connection, token
/// responses and error responses.
const OVERHEAD: u64 = 128 << 10;
/// Maximum size of a lookup in the pool for small lookups, in bytes: [`OVERHEAD`], manifest and
/// signatures of an ordinary image.
const SMALL_LOOKUP: u64 = OVERHEAD + (256 << 10);
/// Number of equal parts of the pool for small lookups. Each requester can use one part at each
/// origin ([`Budget::part_at_origin`]).
const SMALL_PARTS: u64 = 4;
/// Number of equal parts of the pool for small lookups of the reconciler, which is smaller.
const RECONCILE_PARTS: u64 = 2;

/// The reserved memory of one image lookup. The memory is released on drop.
#[derive(Debug)]
pub struct LookupMemory {
    pools: LookupPools,
    requester: String,
    /// Address of the client that sent the review. `None` for lookups of the reconciler.
    client: Option<IpAddr>,
    timeout: Duration,
    held: Mutex<HeldMemory>,
    refused: AtomicBool,
}

/// The pools in which a lookup reserves memory.
#[derive(Debug)]
enum LookupPools {
    Review {
        /// Memory for lookups of ordinary images. Large or stalled lookups of other requesters do
        /// not delay these lookups.
        small: Pool,
        /// The memory for reviews.
        trees: Pool,
    },
    Reconcile {
        /// Memory for lookups of ordinary images. These lookups do not reduce the memory for
        /// content.
        small: Pool,
        /// The memory for content.
        content: Pool,
    },
}

#[derive(Debug, Default)]
struct HeldMemory {
    bytes: u64,
    shares: Vec<Share>,
}

impl LookupMemory {
    /// Creates a lookup for a review of `requester` without reserved memory. If the address of the
    /// client is known, its limit also applies. Each reservation waits for at most `timeout`.
    pub fn of_review(
        budget: &Budget,
        (requester, client): (&str, Option<IpAddr>),
        timeout: Duration,
    ) -> Self {
        let pools = LookupPools::Review {
            small: budget.small_lookups.clone(),
            trees: budget.parsed_objects.clone(),
        };
        Self::new(pools, (requester, client), timeout)
    }

    /// Creates a lookup for a reconcile of `requester` without reserved memory. If
    /// [`Budget::reconcile_lookups`] has not enough memory, the lookup counts for the limit of the
    /// requester in [`Budget::content`]. Each reservation waits for at most `timeout`.
    ///
    /// The caller must not have another share of [`Budget::content`], and must drop the lookup
    /// before it waits for such a share. Otherwise two callers could wait for each other. A lookup
    /// with several responses reserves further memory while it has memory. Lookups that wait for
    /// each other end after `timeout`, and release all their memory.
    pub fn of_reconcile(budget: &Budget, requester: &str, timeout: Duration) -> Self {
        let pools = LookupPools::Reconcile {
            small: budget.reconcile_lookups.clone(),
            content: budget.content.clone(),
        };
        Self::new(pools, (requester, None), timeout)
    }

    fn new(
        pools: LookupPools,
        (requester, client): (&str, Option<IpAddr>),
        timeout: Duration,
    ) -> Self {
        Self {
            pools,
            requester: requester.to_owned(),
            client,
            timeout,
            held: Mutex::default(),
            refused: AtomicBool::new(false),
        }
    }

    /// Reserves the memory that a lookup needs before its first response, if this memory is not
    /// reserved yet. Returns `false` if the memory is not available.
    pub async fn begin(&self) -> bool {
        let is_begun = self.held.lock().await.bytes > 0;
        is_begun || self.grow(OVERHEAD).await
    }

    /// Returns the requester whose limits apply to the lookup.
    pub fn requester(&self) -> &str {
        &self.requester
    }

    /// Returns the address of the client that sent the review. Returns `None` for lookups of the
    /// reconciler.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Returns `true` if at least one reservation of memory failed.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the limits of a lookup in the memory of reviews: the limits of its requester, and
    /// three quarters of the pool for all lookups. The last quarter remains for the objects of
    /// reviews. A lookup for a client address must leave one eighth below the limit of the address
    /// ([`Budget::by_address`]), for the objects of reviews of this client.
    fn review_caps(&self, trees: &Pool) -> Vec<Cap> {
        let mut caps = Budget::of_requester(trees, &self.requester, self.client);
        let capacity = trees.capacity();
        caps.push(Cap::new("lookups at images".to_owned(), capacity / 4 * 3));
        let of_client = |client| address_cap(client, capacity / 8 * 5);
        caps.extend(self.client.map(of_client));
        caps
    }

    /// Reserves `bytes` bytes in the pool for small lookups, for a lookup with `total` bytes.
    /// Returns `None` if they are not free now.
    fn small_share(&self, bytes: u64, total: u64) -> Option<Share> {
        if total > SMALL_LOOKUP {
            return None;
        }
        let (small, parts) = match &self.pools {
            LookupPools::Review { small, .. } => (small, SMALL_PARTS),
            LookupPools::Reconcile { small, .. } => (small, RECONCILE_PARTS),
        };
        let caps = Budget::part_at_origin(small, &self.requester, self.client, parts);
        small.try_take(bytes, caps)
    }
}

impl MemoryReservation for LookupMemory {
    fn grow(&self, bytes: u64) -> BoxFuture<'_, bool> {
        async move {
            let mut held = self.held.lock().await;
            held.bytes = held.bytes.saturating_add(bytes);
            if let Some(share) = self.small_share(bytes, held.bytes) {
                held.shares.push(share);
                return true;
            }
            let (pool, caps) = match &self.pools {
                LookupPools::Review { trees, .. } => (trees, self.review_caps(trees)),
                LookupPools::Reconcile { content, .. } => {
                    (content, Budget::half(content, &self.requester))
                }
            };
            let share = pool.take(bytes, caps);
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
    use tokio::task::unconstrained;

    use super::*;

    const MIB: u64 = 1 << 20;
    /// Total size of the documents of an ordinary image in memory, in bytes. Each document is in
    /// memory as received and as parsed.
    const ORDINARY: u64 = 20 << 10;
    /// Total size of the documents of a small lookup in memory, in bytes. This size is just below
    /// the maximum.
    const STALLED: u64 = 250 << 10;

    fn budget(trees: u64) -> Budget {
        Budget {
            parsed_objects: Pool::new(trees),
            ..Budget::default()
        }
    }

    fn lookup_memory(budget: &Budget, requester: &str) -> LookupMemory {
        LookupMemory::of_review(budget, (requester, None), Duration::from_secs(2))
    }

    /// Returns a lookup for a review from the address with the host number `host`.
    fn lookup_at(budget: &Budget, requester: &str, host: u8) -> LookupMemory {
        let client = Some(IpAddr::from([10, 0, 0, host]));
        LookupMemory::of_review(budget, (requester, client), Duration::from_secs(2))
    }

    /// Begins a lookup with a response of `bytes` bytes. Returns the lookup if its memory is free
    /// without a wait.
    fn begun(budget: &Budget, requester: &str, bytes: u64) -> Option<LookupMemory> {
        let lookup = lookup_memory(budget, requester);
        // Without `unconstrained`, tokio would make ready futures wait in a test with many lookups.
        let is_begun = unconstrained(lookup.begin()).now_or_never()?;
        let has_grown = unconstrained(lookup.grow(bytes)).now_or_never()?;
        (is_begun && has_grown).then_some(lookup)
    }

    #[tokio::test(start_paused = true)]
    async fn large_responses_of_one_requester_wait_and_those_of_others_do_not() {
        let budget = budget(16 * MIB);
        let first = lookup_memory(&budget, "ana");
        assert!(first.grow(8 * MIB).await);
        let second = lookup_memory(&budget, "ana");
        assert!(!second.grow(8 * MIB).await);
        assert!(second.is_refused() && !first.is_refused());
        // The separate pool for ordinary images still has free memory.
        assert!(begun(&budget, "ana", ORDINARY).is_some());
        assert!(lookup_memory(&budget, "bob").grow(4 * MIB).await);
        drop(first);
        assert_eq!(budget.parsed_objects.used(), 0);
        assert!(second.grow(8 * MIB).await);
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_leave_memory_for_the_objects_of_reviews() {
        let budget = budget(16 * MIB);
        let lookups = ["ana", "bob"].map(|name| lookup_memory(&budget, name));
        assert!(lookups[0].grow(6 * MIB).await);
        assert!(lookups[1].grow(6 * MIB).await);
        assert!(!lookup_memory(&budget, "eve").grow(MIB).await);
        let objects = budget.parsed_objects.take(4 * MIB, Vec::new());
        assert!(objects.now_or_never().is_some());
    }

    #[tokio::test]
    async fn stalled_lookups_of_any_number_of_requesters_use_bounded_memory() {
        for requesters in [1, 2, 100] {
            let budget = budget(16 * MIB);
            let held: Vec<_> = (0..1_000)
                .filter_map(|number| {
                    let requester = format!("mallory-{}", number % requesters);
                    begun(&budget, &requester, STALLED)
                })
                .collect();
            assert!(!held.is_empty());
            let used = (budget.small_lookups.used(), budget.parsed_objects.used());
            let most = if requesters == 1 {
                (budget.small_lookups.capacity() / SMALL_PARTS, 8 * MIB)
            } else {
                (budget.small_lookups.capacity(), 12 * MIB)
            };
            assert!(used.0 <= most.0 && used.1 <= most.1, "{used:?}, {most:?}");
            // The pools count the memory of every lookup, including lookups that wait for their
            // first response.
            assert!(used.0 + used.1 >= held.len() as u64 * (OVERHEAD + STALLED));
            drop(held);
            assert_eq!(
                (budget.small_lookups.used(), budget.parsed_objects.used()),
                (0, 0)
            );
        }
    }

    #[tokio::test]
    async fn client_with_many_requesters_leaves_lookups_to_other_addresses() {
        let budget = budget(16 * MIB);
        let lookup = |requester: &str, host: u8| lookup_at(&budget, requester, host);
        let stalled: Vec<_> = (0..1_000)
            .map(|number| {
                let lookup = lookup(&format!("forged-{number}"), 1);
                let has_begun = unconstrained(lookup.begin()).now_or_never();
                let has_grown = unconstrained(lookup.grow(STALLED)).now_or_never();
                (lookup, has_begun == Some(true) && has_grown == Some(true))
            })
            .collect();
        assert!(stalled.iter().any(|(_, is_granted)| !is_granted));
        let (small, trees) = (&budget.small_lookups, &budget.parsed_objects);
        assert!(small.used() <= small.capacity() / 4 * 3);
        assert!(trees.used() <= trees.capacity() / 8 * 5);
        // Memory remains for the objects of reviews of the same address.
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        let objects = trees.try_take(MIB, Budget::of_review(trees, "ana", client));
        assert!(objects.is_some());
        let other = lookup("ana", 2);
        assert_eq!(unconstrained(other.begin()).now_or_never(), Some(true));
        let has_grown = unconstrained(other.grow(ORDINARY)).now_or_never();
        assert_eq!(has_grown, Some(true));
    }

    #[tokio::test]
    async fn two_addresses_leave_the_lookup_of_an_ordinary_image_to_a_third() {
        let budget = Budget::default();
        let lookup = |requester: &str, host: u8| lookup_at(&budget, requester, host);
        let mut stalled = Vec::new();
        for host in [1, 2] {
            for number in 0..100 {
                let lookup = lookup(&format!("forged-{number}"), host);
                let _has_begun = unconstrained(lookup.begin()).now_or_never();
                stalled.push(lookup);
            }
        }
        let small = &budget.small_lookups;
        let used = small.used();
        assert!(used > small.capacity() / 4 * 3);
        let other = lookup("ana", 3);
        assert_eq!(unconstrained(other.begin()).now_or_never(), Some(true));
        let has_grown = unconstrained(other.grow(ORDINARY)).now_or_never();
        assert_eq!(has_grown, Some(true));
        assert_eq!(small.used(), used + OVERHEAD + ORDINARY);
    }

    #[tokio::test]
    async fn stalled_lookups_leave_ordinary_images_to_other_requesters() {
        let budget = budget(16 * MIB);
        let stalled: Vec<_> = (0..1_000)
            .map(|number| begun(&budget, ["mallory", "eve"][number % 2], STALLED))
            .collect();
        assert!(stalled.iter().any(Option::is_none));
        let ordinary = [(); 3].map(|()| begun(&budget, "ana", ORDINARY));
        assert!(ordinary.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_of_reconciles_use_no_memory_of_reviews() {
        let budget = Budget::default();
        let (reviews, content) = (&budget.parsed_objects, &budget.content);
        let of_reconcile = |requester: &str| {
            LookupMemory::of_reconcile(&budget, requester, Duration::from_secs(2))
        };
        let held: Vec<_> = (0..4).map(|_| of_reconcile("ana")).collect();
        let mut refused = 0;
        for lookup in &held {
            let is_granted = lookup.begin().await && lookup.grow(8 * MIB).await;
            refused += u64::from(!is_granted);
        }
        assert_eq!(refused, 2);
        assert_eq!((reviews.used(), budget.small_lookups.used()), (0, 0));
        // The memory counts for the limit of the requester in the pool.
        assert!(content.used() <= content.capacity() / 2);
        let take = |requester: &str| content.try_take(6 * MIB, Budget::half(content, requester));
        assert!(take("ana").is_none() && take("ben").is_some());
        // All memory for content is in use. Small lookups of reconciles have their own memory, and
        // lookups of reviews do not wait for content.
        drop(held);
        let _installed = content.try_take(content.capacity(), Vec::new()).unwrap();
        let small = of_reconcile("ben");
        assert!(small.begin().await && !small.grow(SMALL_LOOKUP).await);
        assert!(begun(&budget, "ana", ORDINARY).is_some());
    }

    #[tokio::test]
    async fn overhead_is_reserved_once() {
        let budget = budget(16 * MIB);
        let lookup = lookup_memory(&budget, "ana");
        assert!(lookup.begin().await && lookup.begin().await);
        assert_eq!(budget.small_lookups.used(), OVERHEAD);
    }
}
