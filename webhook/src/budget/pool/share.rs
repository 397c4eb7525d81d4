//! The reserved units of a pool.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::{State, deliver, lock};

/// Reserved units of a pool. On drop, the units are returned to the pool.
#[derive(Debug)]
pub struct Share {
    pub(super) weight: u64,
    pub(super) keys: Vec<String>,
    pub(super) state: Arc<Mutex<State>>,
}

impl Share {
    /// Returns the weight of this share, in units of the pool.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns all units above `weight` to the pool.
    pub fn reduce(&mut self, weight: u64) {
        let returned = self.weight.saturating_sub(weight);
        self.weight -= returned;
        self.give_back(returned);
    }

    /// Stops counting this share for all keys except the first key. The units stay in use.
    pub fn keep_first_key(&mut self) {
        let ended = self.keys.split_off(self.keys.len().min(1));
        let mut state = lock(&self.state);
        for key in &ended {
            state.subtract(key, self.weight);
        }
        let granted = state.grant(&self.state, Instant::now());
        drop(state);
        deliver(granted);
    }

    /// Stops counting this share for its first key. The units stay in use, and count for the other
    /// keys.
    pub fn release_first_key(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let ended = self.keys.remove(0);
        let mut state = lock(&self.state);
        state.subtract(&ended, self.weight);
        let granted = state.grant(&self.state, Instant::now());
        drop(state);
        deliver(granted);
    }

    fn give_back(&self, units: u64) {
        let mut state = lock(&self.state);
        state.used -= units;
        for key in &self.keys {
            state.subtract(key, units);
        }
        let granted = state.grant(&self.state, Instant::now());
        drop(state);
        deliver(granted);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.weight);
    }
}
