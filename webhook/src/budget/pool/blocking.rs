//! The time limit for waiters that block other waiters of a pool.
//!
//! A waiter blocks another waiter that fits into the free units but cannot pass. The other waiter
//! cannot pass if its weight is too large, or if the passing shares have reached their maximum sum.
//!
//! 1. When a waiter starts to block others, a period of [`BLOCKING_TIME`] begins. The free units
//!    remain for the waiters that block others. The period continues if other waiters replace them.
//! 2. If the waiter that blocks others gets its share in this period, the period ends. The next
//!    waiter can block others for the full time.
//! 3. Otherwise a second period of the same length follows. In this period, all waiters with other
//!    keys that fit into the free units can pass. The order of the waiters stays the same, so the
//!    large waiter gets its share as soon as enough units are free.
//! 4. After the second period, the sums of the passing shares start again at zero, and waiters can
//!    block others again.
//!
//! Therefore a large waiter gets its share if enough units become free within [`BLOCKING_TIME`],
//! even if keys with small shares always wait for the next share. If the units for a large waiter
//! are in use for hours, this waiter delays others for at most half of the time.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum time for which waiters block other waiters that fit into the free units. In the next
/// period of the same length, no waiter blocks others.
///
/// Most shares end within this time, so that a large waiter gets its units. A reconcile waits 10 s
/// for memory. Therefore a blocked reconcile gets its share before its wait ends.
pub(super) const BLOCKING_TIME: Duration = Duration::from_secs(8);

/// Limits the time in which waiters block others. The limit applies to all waiters of a pool
/// together, so that it does not depend on the number of their keys.
#[derive(Debug, Default)]
pub(super) struct BlockingLimit(Option<BlockingPeriod>);

#[derive(Debug)]
struct BlockingPeriod {
    /// The time when a waiter started to block others.
    start: Instant,
    /// Number of the waiter that blocked others most recently.
    waiter: u64,
}

impl BlockingPeriod {
    /// Returns the time when the waiters stop blocking others.
    fn end(&self) -> Instant {
        self.start + BLOCKING_TIME
    }
}

impl BlockingLimit {
    /// Returns true if a waiter can block others at `now`.
    pub(super) fn is_blocking_allowed(&self, now: Instant) -> bool {
        self.0.as_ref().is_none_or(|period| now < period.end())
    }

    /// Returns true if a period is recorded. Without a period, no waiter blocks others.
    pub(super) fn has_period(&self) -> bool {
        self.0.is_some()
    }

    /// Records that the waiter with the number `waiter` blocks others at `now`.
    pub(super) fn record_blocking(&mut self, waiter: u64, now: Instant) {
        let start = self.0.as_ref().map_or(now, |period| period.start);
        self.0 = Some(BlockingPeriod { start, waiter });
    }

    /// Records that the waiter with the number `waiter` gets its share at `now`. If this waiter
    /// blocks others, the period ends, and the next waiter can block others for the full time.
    pub(super) fn record_grant(&mut self, waiter: u64, now: Instant) {
        let period = self.0.take();
        self.0 = period.filter(|period| period.waiter != waiter || now >= period.end());
    }

    /// Removes the period if waiters can block others again after it. Returns true if a period was
    /// removed.
    pub(super) fn remove_ended_period(&mut self, now: Instant) -> bool {
        let period = self.0.take();
        let had_period = period.is_some();
        self.0 = period.filter(|period| now < period.end() + BLOCKING_TIME);
        had_period && self.0.is_none()
    }

    /// Returns the time at which a waiter that waits at `now` must check again: at the latest at
    /// the end of the current period, or of a period that starts after `now`.
    pub(super) fn next_check(&self, now: Instant) -> Instant {
        let end = self.0.as_ref().map(BlockingPeriod::end);
        end.filter(|end| now < *end).unwrap_or(now + BLOCKING_TIME)
    }
}
