//! A weighted semaphore that is fair between keys: bytes of memory or slots, with a limit for each
//! requester or registry.

mod blocking;
mod cap;
mod order;
mod share;
mod waiter;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use blocking::BlockingLimit;
use order::NextShare;
use waiter::Waiter;

pub use cap::{Cap, CapKind};
pub use share::Share;

/// A pool of units, such as bytes or slots. Clones share the same capacity.
#[derive(Debug, Clone)]
pub struct Pool {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Total number of units. This number does not change.
    capacity: u64,
    used: u64,
    /// True if the limit of the group of each share, or of its first key if it has no group,
    /// depends on the number of free units ([`Pool::divided`]).
    is_divided: bool,
    held: HashMap<String, u64>,
    waiting: VecDeque<Waiter>,
    next: u64,
    /// Number of the latest grant of each key ([`State::latest_grant`]). A grant is recorded only
    /// for the group and the first key of its share. Keys without shares and waiters are removed. A
    /// removed key gets a new number when it starts to wait ([`State::add_position`]).
    served: HashMap<String, u64>,
    /// Total weight of the shares that have passed waiters of each first key, since the latest
    /// grant of the key or the latest [`BlockingLimit::remove_ended_period`]. Keys without waiters
    /// are removed.
    passed: HashMap<String, u64>,
    blocking: BlockingLimit,
    /// Number of shares that were granted since the start.
    grants: u64,
}

/// The requested weight exceeds the capacity of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} exceeds the capacity of {capacity}")]
pub struct ShareTooLarge {
    /// The requested weight, in units of the pool.
    pub wanted: u64,
    /// The capacity of the pool, in units.
    pub capacity: u64,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The fields change together, and nothing between the changes can panic.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the queue. On drop, the place is removed from the queue.
struct QueuePlace<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let granted = {
            let mut state = lock(&self.pool.state);
            let waiting = &mut state.waiting;
            let place = waiting.iter().position(|one| one.number == self.number);
            let waiter = place.and_then(|place| waiting.remove(place));
            if let Some(waiter) = &waiter {
                state.forget_if_idle(waiter.passed_key());
                for key in waiter.order_keys().into_iter().flatten() {
                    state.forget_if_idle(key);
                }
            }
            state.grant(&self.pool.state, Instant::now())
        };
        deliver(granted);
    }
}

impl Pool {
    /// Creates a pool with `capacity` units.
    pub fn new(capacity: u64) -> Self {
        Self::with(capacity, false)
    }

    /// Creates a pool that limits one key of each share by the number of free units: the key of its
    /// group ([`CapKind::Group`]), or its first key if it has no group. This key gets a further
    /// share only if, after the grant, at least as many units are free as the key has. Therefore
    /// one key can have half of the units, and a second key half of the remaining units. A few keys
    /// cannot use all units. The other keys of a share have only the limits in their caps.
    pub fn divided(capacity: u64) -> Self {
        Self::with(capacity, true)
    }

    fn with(capacity: u64, is_divided: bool) -> Self {
        let state = State {
            capacity,
            is_divided,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns the capacity of the pool, in units.
    pub fn capacity(&self) -> u64 {
        lock(&self.state).capacity
    }

    /// Returns the number of units that are in use.
    pub fn used(&self) -> u64 {
        lock(&self.state).used
    }

    /// Returns the number of units in the shares of `key`.
    pub fn held(&self, key: &str) -> u64 {
        lock(&self.state).held.get(key).copied().unwrap_or_default()
    }

    /// Returns true if a share of this weight must wait because of the limits in `caps`, even if
    /// units are free.
    pub fn is_capped(&self, weight: u64, caps: &[Cap]) -> bool {
        !lock(&self.state).fits(weight, caps)
    }

    /// Waits for a share of this weight within the limits in `caps`. Only the group and the first
    /// key of each waiter determine the order of waiters. The group with the fewest units in use is
    /// next, and in this group the first key with the fewest units. If several keys have the same
    /// number of units, the key that was served longest ago is next. A key that starts to wait
    /// comes before the key that was served last, and after all other waiting keys. If a key has
    /// several waiters, its oldest waiter is next. Dropping the future removes the waiter.
    ///
    /// The units are divided between groups ([`CapKind::Group`]). A group gets a further share only
    /// if, after the grant, it has at most three times the units that are free. The first share of
    /// a group must leave a third of its own weight free, or a sixteenth of the capacity, if that
    /// is less. Therefore a few groups cannot use all units.
    ///
    /// While the pool has too few free units for the next waiter, smaller shares of other keys can
    /// pass this waiter. Each of these shares can have at most a quarter of the weight of the
    /// waiter. The sum of these shares is at most half of the capacity of the pool, including
    /// shares that have already ended. It counts for all waiters of a key together, until this key
    /// gets a share. Therefore small shares do not wait for a large share. They cannot delay a
    /// large share or the waiters behind it forever, even if new waiters replace the large waiter
    /// again and again.
    ///
    /// Waiters that do not get their shares block others for at most 8 s in each 16 s. In the rest
    /// of this time, all shares of other keys that fit into the free units can pass.
    pub async fn take(&self, weight: u64, caps: Vec<Cap>) -> Result<Share, ShareTooLarge> {
        let too_large = ShareTooLarge {
            wanted: weight,
            capacity: self.capacity(),
        };
        if weight > too_large.capacity {
            return Err(too_large);
        }
        let (place, mut share) = self.enqueue(weight, caps);
        let share = loop {
            let check = self.next_check();
            if let Ok(share) = timeout_at(check, &mut share).await {
                break share;
            }
            self.grant();
        };
        drop(place);
        // This error does not occur. The sender is dropped only after it has sent the share, or
        // when the queue place is dropped. The queue place still exists while this function waits.
        share.map_err(|_| too_large)
    }

    /// Returns a share of this weight within the limits in `caps`, if such a share is available
    /// now.
    pub fn try_take(&self, weight: u64, caps: Vec<Cap>) -> Option<Share> {
        let (_place, mut share) = self.enqueue(weight, caps);
        share.try_recv().ok()
    }

    /// Adds a waiter, and grants shares. Returns the place of the waiter in the queue, and the
    /// receiver of its share.
    fn enqueue(&self, weight: u64, caps: Vec<Cap>) -> (QueuePlace<'_>, oneshot::Receiver<Share>) {
        let (granted, share) = oneshot::channel();
        let (place, ready) = {
            let mut state = lock(&self.state);
            let number = state.next;
            state.next += 1;
            let waiter = Waiter {
                number,
                weight,
                caps,
                granted,
            };
            for key in waiter.order_keys().into_iter().flatten() {
                state.add_position(key);
            }
            state.waiting.push_back(waiter);
            let ready = state.grant(&self.state, Instant::now());
            (QueuePlace { pool: self, number }, ready)
        };
        deliver(ready);
        (place, share)
    }

    /// Returns the time when a waiter must call [`Pool::grant`]: at the latest when other waiters
    /// stop blocking it.
    fn next_check(&self) -> Instant {
        lock(&self.state).blocking.next_check(Instant::now())
    }

    /// Grants the shares that waiters do not block any more.
    fn grant(&self) {
        let granted = {
            let mut state = lock(&self.state);
            if !state.blocking.has_period() {
                return;
            }
            state.grant(&self.state, Instant::now())
        };
        deliver(granted);
    }
}

impl State {
    /// Returns the number of the latest grant for `served`. Numbers of grants are even.
    fn latest_grant(&self) -> u64 {
        self.grants * 2
    }

    /// Records a number just before the latest grant for a key that `served` does not contain. All
    /// keys that were served earlier stay before this key, because they have waited longer.
    /// Otherwise two keys that return again and again could delay the other keys forever.
    fn add_position(&mut self, key: &str) {
        if !self.served.contains_key(key) {
            let position = self.latest_grant().saturating_sub(1);
            self.served.insert(key.to_owned(), position);
        }
    }

    /// Returns the number of this key in `served`. Returns 0 if the waiter has no key.
    fn last_served(&self, key: Option<&str>) -> u64 {
        let served = key.and_then(|key| self.served.get(key));
        served.copied().unwrap_or_default()
    }

    /// Subtracts `units` from the units in the shares of `key`.
    fn subtract(&mut self, key: &str, units: u64) {
        if let Some(held) = self.held.get_mut(key) {
            *held -= units;
            if *held == 0 {
                self.held.remove(key);
                self.forget_if_idle(key);
            }
        }
    }

    /// Removes `key` from `passed` if `key` has no waiters, and from `served` if `key` has neither
    /// shares nor waiters.
    fn forget_if_idle(&mut self, key: &str) {
        if self.waiting.iter().any(|waiter| waiter.has_key(key)) {
            return;
        }
        self.passed.remove(key);
        if !self.held.contains_key(key) {
            self.served.remove(key);
        }
    }

    /// Grants as many shares as possible at `now`, in the order of [`Pool::take`]. Returns the
    /// shares, each with the sender to its waiter. The caller sends the shares after it has
    /// released the lock.
    fn grant(
        &mut self,
        shared: &Arc<Mutex<Self>>,
        now: Instant,
    ) -> Vec<(oneshot::Sender<Share>, Share)> {
        if self.blocking.remove_ended_period(now) {
            self.passed.clear();
        }
        let mut granted = Vec::new();
        loop {
            let can_block = self.blocking.is_blocking_allowed(now);
            let (index, passed) = match self.next_share(can_block) {
                NextShare::Granted { index, passed } => (index, passed),
                NextShare::Blocked { by } => {
                    self.blocking.record_blocking(by, now);
                    return granted;
                }
                NextShare::Unavailable => return granted,
            };
            let Some(waiter) = self.waiting.remove(index) else {
                return granted;
            };
            self.blocking.record_grant(waiter.number, now);
            for key in passed {
                *self.passed.entry(key).or_default() += waiter.weight;
            }
            self.passed.remove(waiter.passed_key());
            self.used += waiter.weight;
            self.grants += 1;
            let position = self.latest_grant();
            for key in waiter.order_keys().into_iter().flatten() {
                self.served.insert(key.to_owned(), position);
            }
            let keys: Vec<String> = waiter.caps.into_iter().map(|cap| cap.key).collect();
            for key in &keys {
                *self.held.entry(key.clone()).or_default() += waiter.weight;
            }
            let share = Share {
                weight: waiter.weight,
                keys,
                state: Arc::clone(shared),
            };
            granted.push((waiter.granted, share));
        }
    }
}

fn deliver(granted: Vec<(oneshot::Sender<Share>, Share)>) {
    for (waiter, share) in granted {
        // If the receiver was dropped, the error contains the share, which is dropped here.
        drop(waiter.send(share));
    }
}

#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod tests;
