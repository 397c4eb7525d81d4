//! Search through the states of the model. Each state is visited once. From each state in which no
//! reconcile runs, a path without disturbances must converge.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::state::{Drift, Objects, Plans, Reconcile, State};

/// On a path without disturbances, the state must converge after at most this number of failed
/// reconciles.
const CONVERGENCE: usize = 4;
/// Maximum number of steps of one reconcile.
const STEPS: usize = 60;

/// Order of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Breadth-first search.
    Breadth,
    /// Depth-first search.
    Depth,
}

/// Bounds of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of states.
    pub(crate) states: usize,
    /// Maximum number of disturbances on each path.
    pub(crate) disturbances: u8,
    pub(crate) order: Order,
}

/// The number of explored states, and the depth of the search.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    /// Number of steps and disturbances on the longest path. In breadth-first order, this number is
    /// the distance from the first state to the most distant state.
    pub(crate) depth: usize,
    /// `true` if all states within the bound of disturbances were explored.
    pub(crate) is_complete: bool,
    pub(crate) plans: usize,
    pub(crate) time: Duration,
}

/// Hashes of visited states, with open addressing and eight bytes each. Two states have the same
/// hash with a probability of 2⁻⁶⁴.
struct Seen {
    slots: Vec<u64>,
    len: usize,
}

impl Seen {
    fn new() -> Self {
        Self {
            slots: vec![0; 1 << 16],
            len: 0,
        }
    }

    /// Adds a hash. Returns `true` if the hash is new.
    fn insert(&mut self, key: u64) -> bool {
        // Zero marks an empty slot of the table, so a key is never zero.
        let key = key.max(1);
        if self.len * 4 >= self.slots.len() * 3 {
            let larger = vec![0; self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, larger);
            for key in old.into_iter().filter(|key| *key != 0) {
                self.put(key);
            }
        }
        let is_new = self.put(key);
        self.len += usize::from(is_new);
        is_new
    }

    fn put(&mut self, key: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut slot = usize::try_from(key).unwrap_or(usize::MAX) & mask;
        while self.slots[slot] != 0 {
            if self.slots[slot] == key {
                return false;
            }
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = key;
        true
    }
}

/// Explores all states within `limits`.
pub(crate) fn explore(limits: Limits) -> Explored {
    let start = Instant::now();
    let mut plans = Plans::default();
    let mut seen = Seen::new();
    let mut converged = Seen::new();
    let first = State::new(limits.disturbances);
    seen.insert(first.key());
    let mut left = VecDeque::from([(first, 0_usize)]);
    let mut depth = 0;
    let mut next = Vec::new();
    let mut is_complete = true;
    loop {
        let taken = match limits.order {
            Order::Breadth => left.pop_front(),
            Order::Depth => left.pop_back(),
        };
        let Some((state, steps)) = taken else {
            break;
        };
        depth = depth.max(steps);
        if seen.len >= limits.states {
            is_complete = false;
            break;
        }
        if state.reconcile == Reconcile::None {
            converges(&state, &mut plans, &mut converged);
        }
        next.clear();
        state.step(&mut plans, &mut next);
        state.disturbed(&mut next);
        for state in &next {
            if seen.insert(state.key()) {
                left.push_back((*state, steps + 1));
            }
        }
    }
    Explored {
        states: seen.len,
        depth,
        is_complete,
        plans: plans.len(),
        time: start.elapsed(),
    }
}

/// Runs reconciles from `state` without disturbances. The search ends in a settled state, or in a
/// state that is known to converge.
fn converges(state: &State, plans: &mut Plans, converged: &mut Seen) {
    let mut now = state.without_disturbances();
    let mut next = Vec::new();
    for _ in 0..CONVERGENCE {
        if !converged.insert(now.key()) {
            return;
        }
        let mut has_failed = true;
        for number in 0.. {
            assert!(number < STEPS, "steps are repeated without end: {state:?}");
            next.clear();
            now.step(plans, &mut next);
            let Some(after) = next.last() else {
                break;
            };
            if let Reconcile::Install(run) = now.reconcile {
                has_failed = run.has_failed;
            }
            now = *after;
            if now.reconcile == Reconcile::None {
                break;
            }
        }
        // Without disturbances, only a failure triggers another reconcile.
        if !has_failed || now.cluster.is_gone {
            break;
        }
    }
    assert_settled(&now, state);
}

fn assert_settled(now: &State, from: &State) {
    let (cluster, record) = (&now.cluster, &now.record);
    if cluster.is_deleted {
        assert!(cluster.is_gone, "is not removed: {from:?} {now:?}");
        let is_left = cluster.objects != [Objects::None; 2];
        assert!(!is_left || cluster.is_orphan, "{from:?} {now:?}");
        return;
    }
    let (wanted, other) = (usize::from(cluster.wanted), usize::from(1 - cluster.wanted));
    assert_eq!(record.installed, Some(cluster.wanted), "{from:?} {now:?}");
    assert_eq!(now.memory.known, Some(cluster.wanted), "{from:?} {now:?}");
    assert_eq!(cluster.objects[wanted], Objects::All, "{from:?} {now:?}");
    assert_eq!(cluster.objects[other], Objects::None, "{from:?} {now:?}");
    assert!(!record.objects[other], "{from:?} {now:?}");
    let is_restored = cluster.drift == Drift::None || !cluster.corrects_drift;
    assert!(is_restored, "{from:?} {now:?}");
    let terms = Some((cluster.wanted, cluster.terms));
    assert_eq!(record.decided, terms, "{from:?} {now:?}");
    assert!(now.shown.is_installed && now.shown.is_present, "{now:?}");
}
