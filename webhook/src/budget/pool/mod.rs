//! A weighted semaphore that is fair between keys: bytes of memory or slots, with a limit for each
//! requester or registry.

mod blocking;
mod cap;
mod share;
mod waiter;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use blocking::BlockingLimit;
use waiter::Waiter;

pub use cap::{Cap, CapKind};
pub use share::Share;

/// A share can pass an earlier waiter if the weight of the share is at most the weight of the
/// waiter divided by this value.
const PASSING_PART: u64 = 4;
/// Shares can pass the waiters of one key until their total weight reaches the capacity of the pool
/// divided by this value. The sum starts again at zero after the key gets a share, and after
/// waiters have blocked others for their maximum time.
const PASSED_PART: u64 = 2;
/// A group can have at most this many times the units that are free after its share
/// ([`CapKind::Group`]). Therefore a single group can have three quarters of the units.
const GROUP_FACTOR: u64 = 3;
/// The first share of a group never has to leave more than the capacity of the pool divided by this
/// value. Otherwise the largest shares would never be granted. The reserve of a group has the same
/// size ([`CapKind::GroupWithReserve`]).
const FIRST_SHARE_PART: u64 = 16;

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
    /// True if the limit of the first key of each share depends on the number of free units
    /// ([`Pool::divided`]).
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

/// The result of [`State::next_share`].
enum NextShare {
    /// The waiter with the index `index` gets a share, which passes waiters with the first keys
    /// `passed`.
    Granted { index: usize, passed: Vec<String> },
    /// No waiter can get a share now, because the waiter with the number `by` blocks another waiter
    /// that fits into the free units.
    Blocked { by: u64 },
    /// No waiter fits into the free units.
    Unavailable,
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

    /// Creates a pool that limits the first key of each share by the number of free units. A key
    /// gets a further share only if, after the grant, at least as many units are free as the key
    /// has. Therefore one key can have half of the units, and a second key half of the remaining
    /// units. A few keys cannot use all units. The other keys of a share have only the limits in
    /// their caps.
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
    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    fn held(&self, key: &str) -> u64 {
        self.held.get(key).copied().unwrap_or_default()
    }

    fn fits(&self, weight: u64, caps: &[Cap]) -> bool {
        let rest = self.free().saturating_sub(weight);
        let held_by_first = caps.first().map_or(0, |cap| self.held(&cap.key));
        let reserve = self.capacity / FIRST_SHARE_PART;
        let can_use_reserve = held_by_first == 0 && weight <= reserve && rest >= reserve;
        caps.iter().enumerate().all(|(index, cap)| {
            let held = self.held(&cap.key);
            if held == 0 || (cap.kind == CapKind::Sum && held_by_first == 0) {
                return true;
            }
            let total = held.saturating_add(weight);
            if cap.kind == CapKind::GroupWithReserve
                && can_use_reserve
                && total <= cap.limit.saturating_add(reserve)
            {
                return true;
            }
            let mut most = cap.limit;
            if self.is_divided && index == 0 {
                most = most.min(rest);
            }
            if self.is_divided_group(cap) {
                most = most.min(rest.saturating_mul(GROUP_FACTOR));
            }
            total <= most
        })
    }

    /// Returns true if the units are divided between this group and others.
    fn is_divided_group(&self, cap: &Cap) -> bool {
        cap.kind.is_group() && cap.limit < self.capacity
    }

    /// Returns the number of units that must be free before this waiter gets its share: the weight
    /// of the share, and the units that the first share of a group must leave.
    fn required(&self, waiter: &Waiter) -> u64 {
        let group = waiter.group().filter(|cap| self.is_divided_group(cap));
        if group.is_none_or(|cap| self.held(&cap.key) > 0) {
            return waiter.weight;
        }
        let left = waiter.weight.div_ceil(GROUP_FACTOR);
        let left = left.min(self.capacity / FIRST_SHARE_PART);
        waiter.weight.saturating_add(left).min(self.capacity)
    }

    /// Returns the position of a waiter in the queue. The waiter with the lowest position is next.
    fn position(&self, waiter: &Waiter) -> [u64; 5] {
        let [group, first] = waiter.order_keys().map(|key| {
            let held = key.map_or(0, |key| self.held(key));
            (held, self.last_served(key))
        });
        [group.0, group.1, first.0, first.1, waiter.number]
    }

    /// Returns the maximum weight of a share that can pass this waiter.
    fn passable(&self, waiter: &Waiter) -> u64 {
        let passed = self.passed.get(waiter.passed_key()).copied();
        let rest = (self.capacity / PASSED_PART).saturating_sub(passed.unwrap_or_default());
        rest.min(waiter.weight / PASSING_PART)
    }

    /// Returns the indices of the waiters that their own limits do not block. Omits each waiter with
    /// the same weight and limits as the waiter directly before it. Such a waiter never gets a share
    /// before the other waiter, and it never changes the order of further waiters. Therefore many
    /// waiters of one requester need little time.
    fn candidates(&self) -> Vec<usize> {
        let mut found = Vec::new();
        let mut former: Option<&Waiter> = None;
        for (index, waiter) in self.waiting.iter().enumerate() {
            if former.is_some_and(|former| former.has_same_limits(waiter)) {
                continue;
            }
            former = Some(waiter);
            if self.fits(waiter.weight, &waiter.caps) {
                found.push(index);
            }
        }
        found
    }

    /// Returns the next share, or the waiter that blocks it. If `can_block` is false, no waiter
    /// blocks waiters with other keys. Waiters that are blocked by their own limit are ignored.
    fn next_share(&self, can_block: bool) -> NextShare {
        let free = self.free();
        let position = |index: &usize| self.position(&self.waiting[*index]);
        let candidates = self.candidates();
        let Some(next) = candidates.iter().copied().min_by_key(position) else {
            return NextShare::Unavailable;
        };
        if self.required(&self.waiting[next]) <= free {
            return NextShare::Granted {
                index: next,
                passed: Vec::new(),
            };
        }
        let is_free = |index: usize| self.required(&self.waiting[index]) <= free;
        if !candidates.iter().any(|index| is_free(*index)) {
            return NextShare::Unavailable;
        }
        let mut in_order = candidates;
        in_order.sort_by_cached_key(position);
        let mut passed_keys = HashSet::new();
        let mut most = free;
        let mut is_blocking = false;
        for index in in_order {
            let waiter = &self.waiting[index];
            let key = waiter.passed_key();
            if is_free(index) && !passed_keys.contains(key) {
                if waiter.weight <= most {
                    let passed = passed_keys.into_iter().map(str::to_owned).collect();
                    return NextShare::Granted { index, passed };
                }
                is_blocking = true;
            }
            if can_block {
                most = most.min(self.passable(waiter));
            }
            passed_keys.insert(key);
        }
        if is_blocking {
            let by = self.waiting[next].number;
            return NextShare::Blocked { by };
        }
        NextShare::Unavailable
    }

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
