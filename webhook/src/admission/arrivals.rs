//! The slots of reviews whose bodies arrive, and the queue of reviews that wait for a slot. Client
//! addresses are served in turn, so that a client with many requests does not delay the reviews of
//! other addresses. For large bodies, the requesters of one address are also served in turn.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::budget::{Budget, Cap, Pool, Share, address_key};
use crate::server::connections::BusiestAddresses;
use crate::server::deadline::ReviewDeadline;

/// Maximum time that a review waits for a slot.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of reviews that wait for a slot, or for the first bytes of a large body. The
/// buffers of a connection contain up to 10 KiB of each body. The first bytes of a large body need
/// about 10 KiB more. Clients can send thousands of requests on their connections at the same time.
const MAX_WAITING: usize = 256;

/// The reviews that wait for a slot. If too many reviews wait, the wait of one review ends. In the
/// network with the most waiting reviews, this is the newest review of the address with the most
/// waiting reviews. If the requesters of this address are known, it is the newest review of the
/// requester with the most waiting reviews.
#[derive(Debug, Default)]
pub(super) struct ArrivalQueue {
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    next: u64,
    /// The waiting reviews by number. The newest review has the highest number.
    waiting: BTreeMap<u64, WaitingReview>,
}

#[derive(Debug)]
struct WaitingReview {
    from: IpAddr,
    /// The first key in the limits of this review. For a large body, the key names the requester at
    /// the client address, or the address until the first bytes have arrived.
    key: String,
    /// Cancelled when this review must not wait any longer.
    ended: CancellationToken,
}

/// The place of a waiting review. The place is free again when this value is dropped.
struct WaitingPlace<'a> {
    queue: &'a ArrivalQueue,
    number: u64,
    ended: CancellationToken,
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.queue.lock().waiting.remove(&self.number);
    }
}

impl WaitingPlace<'_> {
    /// Sets the first key in the limits of this review.
    fn set_key(&self, key: String) {
        if let Some(review) = self.queue.lock().waiting.get_mut(&self.number) {
            review.key = key;
        }
    }

    /// Waits for a slot in `slots` within the limits in `caps`. Returns `None` if no slot becomes
    /// free in time, or if this review must not wait any longer.
    async fn slot(&self, slots: &Pool, caps: Vec<Cap>, deadline: ReviewDeadline) -> Option<Share> {
        let end = deadline.half().min(Instant::now() + ARRIVAL_TIMEOUT);
        tokio::select! {
            slot = timeout_at(end, slots.take(1, caps)) => slot.ok().and_then(Result::ok),
            () = self.ended.cancelled() => None,
        }
    }
}

impl QueueState {
    /// Returns the number of the review whose wait must end, so that a further review from the
    /// address `from` with the key `key` can wait. Returns `None` if the further review must not
    /// wait.
    fn displaced(&self, from: IpAddr, key: &str) -> Option<u64> {
        let clients = self.waiting.values().map(|it| it.from).chain([from]);
        let busiest = BusiestAddresses::of(clients);
        let mut counts = BTreeMap::<&str, usize>::new();
        let reviews = self.waiting.values().map(|it| (it.from, it.key.as_str()));
        for (from, key) in reviews.chain([(from, key)]) {
            if busiest.contains(from) {
                *counts.entry(key).or_default() += 1;
            }
        }
        let most = counts.values().max();
        let is_busiest = |from, key: &str| busiest.contains(from) && counts.get(key) == most;
        if is_busiest(from, key) {
            return None;
        }
        let mut newest_first = self.waiting.iter().rev();
        let newest = newest_first.find(|(_, it)| is_busiest(it.from, &it.key));
        newest.map(|(number, _)| *number)
    }
}

impl ArrivalQueue {
    /// Waits for a slot in `slots` for a review with a small body from the address `from`. The
    /// address with the fewest slots is next. Returns `None` if no slot becomes free in time, or if
    /// too many reviews wait.
    pub(super) async fn slot(
        &self,
        slots: &Pool,
        from: IpAddr,
        deadline: ReviewDeadline,
    ) -> Option<Share> {
        let caps = Budget::by_address(slots, from);
        if let Some(slot) = slots.try_take(1, caps.clone()) {
            return Some(slot);
        }
        let place = self.enter(from, first_key(&caps))?;
        place.slot(slots, caps, deadline).await
    }

    /// Waits for a slot in `slots` for a review with a large body from the address `from`. Before
    /// that, waits for `requester`, which receives the first bytes of the body and returns the name
    /// of the requester. The address with the fewest slots is next, and of its requesters the one
    /// with the fewest slots. All reviews of the address without a name count as one requester.
    ///
    /// Returns the slot and the name. Returns `None` if no slot becomes free in time, or if too
    /// many reviews wait.
    pub(super) async fn large_slot(
        &self,
        slots: &Pool,
        from: IpAddr,
        deadline: ReviewDeadline,
        requester: impl Future<Output = Option<String>>,
    ) -> Option<(Share, Option<String>)> {
        // Reviews that are known to have no name have another key. Otherwise they could use all
        // places, and further reviews would get no place.
        let place = self.enter(from, &format!("{} first bytes", address_key(from)))?;
        let requester = tokio::select! {
            requester = requester => requester,
            () = place.ended.cancelled() => return None,
        };
        let caps = Budget::of_large_body(slots, requester.as_deref(), from);
        place.set_key(first_key(&caps).to_owned());
        let slot = place.slot(slots, caps, deadline).await?;
        Some((slot, requester))
    }

    /// Adds a waiting review with the first key `key` in its limits. If all places are in use, ends
    /// the wait of another review. Returns `None` if no other review must end.
    fn enter(&self, from: IpAddr, key: &str) -> Option<WaitingPlace<'_>> {
        let ended = CancellationToken::new();
        let mut state = self.lock();
        if state.waiting.len() >= MAX_WAITING {
            let displaced = state.displaced(from, key)?;
            if let Some(displaced) = state.waiting.remove(&displaced) {
                displaced.ended.cancel();
            }
        }
        let number = state.next;
        state.next += 1;
        let review = WaitingReview {
            from,
            key: key.to_owned(),
            ended: ended.clone(),
        };
        state.waiting.insert(number, review);
        Some(WaitingPlace {
            queue: self,
            number,
            ended,
        })
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code panics while it holds the lock, so the state is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn first_key(caps: &[Cap]) -> &str {
    caps.first().map_or("", |cap| cap.key.as_str())
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use tokio::task::unconstrained;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    fn address(host: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, host])
    }

    /// Waits for a slot for a large body whose first bytes have arrived. They contain the name of
    /// `requester`, or no name.
    fn large<'a>(
        queue: &'a ArrivalQueue,
        slots: &'a Pool,
        requester: Option<&str>,
        host: u8,
    ) -> BoxFuture<'a, Option<Share>> {
        let name = ready(requester.map(str::to_owned));
        let deadline = ReviewDeadline::after(LIMIT);
        let slot = queue.large_slot(slots, address(host), deadline, name);
        slot.map(|arrival| arrival.map(|(slot, _)| slot)).boxed()
    }

    /// Returns the slot if it is free now.
    fn now(slot: BoxFuture<'_, Option<Share>>) -> Option<Share> {
        // Without `unconstrained`, tokio would make ready futures wait in a test with many slots.
        unconstrained(slot).now_or_never().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn two_addresses_leave_slots_to_a_third() {
        let budget = Budget::default();
        for is_large in [false, true] {
            let queue = ArrivalQueue::default();
            let slot = |host: u8, number: usize| {
                if is_large {
                    let name = number.to_string();
                    return now(large(&queue, &budget.large_arrivals, Some(&name), host));
                }
                let deadline = ReviewDeadline::after(LIMIT);
                let slot = queue.slot(&budget.small_arrivals, address(host), deadline);
                now(slot.boxed())
            };
            let all = |host: u8| {
                let slots = (0..300).map_while(|number| slot(host, number));
                slots.collect::<Vec<_>>()
            };
            let held = [all(1), all(2)];
            assert!(held.iter().all(|slots| slots.len() >= 16));
            assert!(all(3).len() >= 8);
            assert!(queue.lock().waiting.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requester_leaves_slots_for_large_bodies_to_others_at_its_address() {
        let budget = Budget::default();
        let slots = &budget.large_arrivals;
        let quarter = usize::try_from(slots.capacity() / 4).unwrap();
        // All reviews without a name count as one requester.
        for mallory in [Some("mallory"), None] {
            let queue = ArrivalQueue::default();
            let wait = |requester: Option<&str>| large(&queue, slots, requester, 1);
            let all = |requester: Option<&str>| {
                let held = (0..100).map_while(|_| now(wait(requester)));
                held.collect::<Vec<_>>()
            };
            let mut held = all(mallory);
            let others = [all(Some("ana")), all(Some("ben"))];
            let [of_ana, of_ben] = others.each_ref().map(Vec::len);
            assert_eq!((held.len(), of_ana, of_ben), (quarter, quarter, 0));
            // All slots of the address are in use. The requester without a slot is next, although
            // other reviews have waited longer.
            let mut earlier: Vec<_> = (0..100).map(|_| wait(mallory)).collect();
            for one in &mut earlier {
                assert!(one.as_mut().now_or_never().is_none());
            }
            let mut next = wait(Some("ben"));
            assert!(next.as_mut().now_or_never().is_none());
            drop(held.pop());
            assert!(next.await.is_some());
            drop((held, others, earlier));
            assert_eq!(slots.used(), 0);
            assert!(queue.lock().waiting.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn address_without_slots_is_next_and_the_wait_is_limited() {
        let slots = Pool::new(2);
        let queue = ArrivalQueue::default();
        let wait = |host: u8| {
            let deadline = ReviewDeadline::after(LIMIT);
            Box::pin(queue.slot(&slots, address(host), deadline))
        };
        let held = || {
            let caps = vec![Cap::new(address_key(address(1)), 2)];
            slots.try_take(1, caps).unwrap()
        };
        let held = [held(), held()];
        let mut earlier: Vec<_> = (0..9).map(|_| wait(1)).collect();
        for waiting in &mut earlier {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let mut other = wait(2);
        assert!(other.as_mut().now_or_never().is_none());
        let [first, _second] = held;
        drop(first);
        assert!(other.await.is_some());
        let began = Instant::now();
        let ended = futures::future::join_all(earlier).await;
        assert!(ended.iter().all(Option::is_none));
        assert_eq!(began.elapsed().as_secs(), ARRIVAL_TIMEOUT.as_secs());
        assert!(queue.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_before_half_of_a_short_time_limit() {
        let slots = Pool::new(1);
        let _held = slots.take(1, Vec::new()).await;
        let queue = ArrivalQueue::default();
        let began = Instant::now();
        let deadline = ReviewDeadline::after(Duration::from_secs(2));
        assert!(queue.slot(&slots, address(1), deadline).await.is_none());
        assert_eq!(began.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_ends_the_newest_wait_of_the_requester_with_the_most() {
        let budget = Budget::default();
        let slots = &budget.large_arrivals;
        let _held = slots.take(slots.capacity(), Vec::new()).await;
        for mallory in [Some("mallory"), None] {
            let queue = ArrivalQueue::default();
            let wait = |requester: Option<&str>| large(&queue, slots, requester, 1);
            let mut waiting: Vec<_> = (0..MAX_WAITING - 6).map(|_| wait(mallory)).collect();
            waiting.extend((0..6).map(|_| wait(Some("ana"))));
            // The first bytes of the first review have not arrived.
            let deadline = ReviewDeadline::after(LIMIT);
            let first_bytes = queue.large_slot(slots, address(1), deadline, pending());
            let further = [first_bytes.map(|_| None::<Share>).boxed()];
            let further = further.into_iter();
            waiting.extend(further.chain(["ana", "ben", "eve"].map(|name| wait(Some(name)))));
            for one in &mut waiting {
                assert!(one.as_mut().now_or_never().is_none());
            }
            let newest = MAX_WAITING - 6 - 4..MAX_WAITING - 6;
            for (number, mut one) in waiting.into_iter().enumerate() {
                let is_ended = one.as_mut().now_or_never().is_some();
                assert_eq!(is_ended, newest.contains(&number), "{number}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_ends_the_newest_wait_of_the_address_with_the_most() {
        let queue = ArrivalQueue::default();
        let enter = |host: u8| queue.enter(address(host), &address_key(address(host)));
        let places = (0..MAX_WAITING - 2).filter_map(|_| enter(1));
        let mut places: Vec<_> = places.collect();
        let mut others: Vec<_> = [2, 2].into_iter().filter_map(enter).collect();
        assert_eq!(places.len() + others.len(), MAX_WAITING);
        assert!(enter(1).is_none());
        others.extend([2, 3].into_iter().filter_map(enter));
        assert_eq!(others.len(), 4);
        let is_ended = |place: &WaitingPlace<'_>| place.ended.is_cancelled();
        assert!(!others.iter().any(is_ended));
        let ended = places.split_off(places.len() - 2);
        assert!(ended.iter().all(is_ended) && !places.iter().any(is_ended));
        drop((places, others, ended));
        assert!(queue.lock().waiting.is_empty());
    }
}
