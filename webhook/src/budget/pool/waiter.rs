//! A waiter in the queue of a pool, and the keys that determine its order.

use tokio::sync::oneshot;

use super::{Cap, Share};

/// A waiter in the queue of a pool.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) weight: u64,
    pub(super) caps: Vec<Cap>,
    pub(super) granted: oneshot::Sender<Share>,
}

impl Waiter {
    /// Returns the key that determines the order of this waiter in its group.
    fn first_key(&self) -> Option<&str> {
        self.caps.first().map(|cap| cap.key.as_str())
    }

    /// Returns the cap of the group of this waiter.
    pub(super) fn group(&self) -> Option<&Cap> {
        self.caps.iter().find(|cap| cap.kind.is_group())
    }

    /// Returns the key that determines the order of the group of this waiter. If the waiter has no
    /// group, the key is the first key of the waiter.
    fn group_key(&self) -> Option<&str> {
        let group = self.group().or_else(|| self.caps.first());
        group.map(|cap| cap.key.as_str())
    }

    /// Returns the keys that determine the order of this waiter: of its group, and in its group.
    pub(super) fn order_keys(&self) -> [Option<&str>; 2] {
        [self.group_key(), self.first_key()]
    }

    /// Returns the key in `State::passed`. All waiters without caps have the same key.
    pub(super) fn passed_key(&self) -> &str {
        self.first_key().unwrap_or_default()
    }

    /// Returns true if `other` has the same weight and the same limits.
    pub(super) fn has_same_limits(&self, other: &Self) -> bool {
        self.weight == other.weight && self.caps == other.caps
    }

    /// Returns true if `key` determines the order of this waiter, or which shares pass it.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.passed_key() == key || self.group_key() == Some(key)
    }
}
