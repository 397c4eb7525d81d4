//! The slots of reviews whose bodies arrive, and the queue of reviews that wait for a slot. Client
//! addresses are served in turn, so that a client with many requests does not delay the reviews of
//! other addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::budget::{Budget, Pool, Share};
use crate::server::connections::BusiestAddresses;
use crate::server::deadline::ReviewDeadline;

/// Maximum time that a review waits for a slot.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of reviews that wait for a slot. The buffers of a connection contain up to 10 KiB
/// of each body. Clients can send thousands of requests on their connections at the same time.
const MAX_WAITING: usize = 256;

/// The reviews that wait for a slot. If too many reviews wait, the wait of one review ends. In the
/// network with the most waiting reviews, this is the newest review of the address with the most
/// waiting reviews.
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

impl ArrivalQueue {
    /// Waits for a slot in `slots` for a review from the address `from`. The address with the
    /// fewest slots is next. Returns `None` if no slot becomes free in time, or if too many reviews
    /// wait.
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
        let place = self.enter(from)?;
        let end = deadline.half().min(Instant::now() + ARRIVAL_TIMEOUT);
        tokio::select! {
            slot = timeout_at(end, slots.take(1, caps)) => slot.ok().and_then(Result::ok),
            () = place.ended.cancelled() => None,
        }
    }

    /// Adds a waiting review. If all places are in use, ends the wait of another review. Returns
    /// `None` if no other review must end.
    fn enter(&self, from: IpAddr) -> Option<WaitingPlace<'_>> {
        let ended = CancellationToken::new();
        let mut state = self.lock();
        if state.waiting.len() >= MAX_WAITING {
            let clients = state.waiting.values().map(|it| it.from).chain([from]);
            let busiest = BusiestAddresses::of(clients);
            if busiest.contains(from) {
                return None;
            }
            let mut newest_first = state.waiting.iter().rev();
            let newest = newest_first.find(|(_, it)| busiest.contains(it.from));
            let newest = newest.map(|(number, _)| *number);
            let displaced = newest.and_then(|number| state.waiting.remove(&number));
            if let Some(displaced) = displaced {
                displaced.ended.cancel();
            }
        }
        let number = state.next;
        state.next += 1;
        let review = WaitingReview {
            from,
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::budget::{Cap, address_key};

    const LIMIT: Duration = Duration::from_secs(8);

    fn address(host: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, host])
    }

    #[tokio::test(start_paused = true)]
    async fn two_addresses_leave_slots_to_a_third() {
        let budget = Budget::default();
        for slots in [&budget.small_arrivals, &budget.large_arrivals] {
            let queue = ArrivalQueue::default();
            let slot = |host: u8| {
                let slot = queue.slot(slots, address(host), ReviewDeadline::after(LIMIT));
                slot.now_or_never().flatten()
            };
            let all = |host: u8| (0..300).map_while(|_| slot(host)).collect::<Vec<_>>();
            let held = [all(1), all(2)];
            assert!(held.iter().all(|slots| slots.len() >= 16));
            assert!(all(3).len() >= 8);
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
    async fn full_queue_ends_the_newest_wait_of_the_address_with_the_most() {
        let queue = ArrivalQueue::default();
        let enter = |host: u8| queue.enter(address(host));
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
