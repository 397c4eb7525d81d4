//! The rules that decide which waiter of a pool gets the next share: the limits of keys and groups,
//! the order of the waiters, and the shares that can pass a waiter.

use std::collections::HashSet;

use super::waiter::Waiter;
use super::{Cap, CapKind, State};

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

/// The result of [`State::next_share`].
pub(super) enum NextShare {
    /// The waiter with the index `index` gets a share, which passes waiters with the first keys
    /// `passed`.
    Granted { index: usize, passed: Vec<String> },
    /// No waiter can get a share now, because the waiter with the number `by` blocks another waiter
    /// that fits into the free units.
    Blocked { by: u64 },
    /// No waiter fits into the free units.
    Unavailable,
}

impl State {
    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    fn held(&self, key: &str) -> u64 {
        self.held.get(key).copied().unwrap_or_default()
    }

    pub(super) fn fits(&self, weight: u64, caps: &[Cap]) -> bool {
        let rest = self.free().saturating_sub(weight);
        let held_by_first = caps.first().map_or(0, |cap| self.held(&cap.key));
        let reserve = self.capacity / FIRST_SHARE_PART;
        let can_use_reserve = held_by_first == 0 && weight <= reserve && rest >= reserve;
        let group = caps.iter().position(|cap| cap.kind.is_group());
        let divided = group.unwrap_or_default();
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
            if self.is_divided && index == divided {
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
    pub(super) fn candidates(&self) -> Vec<usize> {
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
    pub(super) fn next_share(&self, can_block: bool) -> NextShare {
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
}
