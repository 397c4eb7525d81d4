//! Search of all states of a rollout: every order of applies, health changes, checks, crashes,
//! pauses and writes of the spec. The number of events is limited.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::review::Requester;

/// Maximum number of events in one run.
const EVENTS: u8 = 7;
/// Deadline in ticks of the clock.
const DEADLINE: i64 = 1;

/// State of the model: the spec, the inventory, the cluster and the clock.
#[derive(Debug, Clone)]
struct State {
    record: RolloutRecord,
    generation: i64,
    /// Digest of the spec without `paused`. Each write of a field other than `paused` changes the
    /// digest.
    digest: String,
    /// Content of the spec.
    wanted: u8,
    is_paused: bool,
    /// Content whose objects are applied completely.
    in_place: Option<u8>,
    /// Content of which only some objects are applied.
    partly_applied: Option<u8>,
    /// True for each content whose objects become healthy.
    heals: [bool; 2],
    is_allowed: bool,
    now: i64,
    /// Number of rollbacks that the planner has started since the last write of the spec.
    rollbacks: u8,
    /// Number of times that the content of the spec was applied after the start of a rollback.
    retries: u8,
    events: u8,
}

/// Event of the model.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A reconcile that executes this number of steps. With fewer than four steps, it crashes
    /// before its end.
    Reconcile(u8),
    Tick,
    ClockBack,
    Write(u8),
    Pause,
    Heal(u8),
    Withdraw,
}

fn content(number: u8) -> RolloutContent {
    RolloutContent::new(&number.to_string(), "digest", &Value::Null)
}

fn spec_of(generation: i64, digest: &str) -> RolloutSpec<'_> {
    RolloutSpec { generation, digest }
}

fn healthy(number: u8) -> HealthyContent {
    let requesters = PartRequesters::all(&Requester::default());
    HealthyContent::new(
        content(number),
        "uid",
        ContentRequest::default(),
        &requesters,
    )
}

impl State {
    fn after(&self, event: Event) -> Self {
        let mut state = self.clone();
        state.events += 1;
        match event {
            Event::Tick => state.now += 1,
            Event::ClockBack => state.now -= 3,
            Event::Heal(number) => state.heals[usize::from(number)] ^= true,
            Event::Withdraw => state.is_allowed ^= true,
            Event::Pause => {
                state.is_paused ^= true;
                state.generation += 1;
            }
            Event::Write(number) => {
                state.wanted = number;
                state.write();
            }
            Event::Reconcile(steps) => state.reconcile(steps),
        }
        state
    }

    fn write(&mut self) {
        self.generation += 1;
        self.digest.push('w');
        self.rollbacks = 0;
        self.retries = 0;
    }

    fn reconcile(&mut self, steps: u8) {
        let spec = spec_of(self.generation, &self.digest);
        self.record.assign(spec, self.now);
        let former = self.record.replacement(self.generation).cloned();
        let target = former.as_ref().map_or(self.wanted, number);
        let content = content(target);
        if self.in_place != Some(target) && !self.is_paused {
            if former.is_some() && !self.is_allowed && self.partly_applied.is_none() {
                self.record
                    .refuse(&RollbackObstacle::Refused("refused".to_owned()));
                return;
            }
            if !self.is_allowed {
                return;
            }
            let writes: [fn(&mut Self, u8); 3] = [Self::begin, Self::apply_some, Self::apply_all];
            for write in writes.iter().take(usize::from(steps)) {
                write(self, target);
            }
            if steps < 4 {
                return;
            }
            let spec = spec_of(self.generation, &self.digest);
            self.record.complete(spec, &content, self.now);
        }
        self.decide();
    }

    fn begin(&mut self, target: u8) {
        let spec = spec_of(self.generation, &self.digest);
        self.record.begin(spec, &content(target), self.now);
    }

    fn apply_some(&mut self, target: u8) {
        self.retries += u8::from(self.rollbacks > 0 && target == self.wanted);
        self.in_place = None;
        self.partly_applied = Some(target);
    }

    fn apply_all(&mut self, target: u8) {
        self.in_place = Some(target);
        self.partly_applied = None;
    }

    fn decide(&mut self) {
        let wanted = content(self.wanted);
        let heals = self.heals[usize::from(self.wanted)];
        let requesters = PartRequesters::all(&Requester::default());
        let observed = ObservedRollout {
            record: &self.record,
            generation: self.generation,
            class: "",
            requesters: &requesters,
            content: &wanted,
            state: match self.in_place {
                Some(found) if found == self.wanted && heals => ContentState::Healthy,
                Some(found) if found == self.wanted => ContentState::Unhealthy,
                _ => ContentState::Unknown,
            },
            is_paused: self.is_paused,
            rolls_back: true,
            deadline: Duration::from_millis(DEADLINE.unsigned_abs()),
            now: self.now,
        };
        let step = observed.step();
        self.rollbacks += u8::from(step == RolloutStep::RollBack);
        assert!(!self.is_paused || step == RolloutStep::Keep, "{self:?}");
        let number = self.wanted;
        let spec = spec_of(self.generation, &self.digest);
        self.record
            .record(&step, (spec, self.now), "cause", || healthy(number));
    }

    /// Checks the invariants, which every state must satisfy.
    fn check(&self) {
        assert!(self.rollbacks <= 1, "one rollback for each spec: {self:?}");
        assert!(
            self.retries == 0 || self.record.replacement(self.generation).is_none(),
            "content that was rolled back is not applied again: {self:?}"
        );
        if let Some(former) = self.record.replacement(self.generation) {
            assert_ne!(number(former), self.wanted, "{self:?}");
        }
    }

    /// Checks that further reconciles without events reach a state that no reconcile changes.
    fn converges(&self) {
        let mut state = self.clone();
        for _ in 0..6 {
            state.reconcile(4);
            state.now += DEADLINE;
        }
        let mut next = state.clone();
        next.reconcile(4);
        assert_eq!(next.record, state.record, "{self:?}");
        assert_eq!(next.in_place, state.in_place, "{self:?}");
    }
}

fn number(content: &HealthyContent) -> u8 {
    content.content.bundle.parse().unwrap()
}

#[test]
fn every_order_of_events_rolls_back_at_most_once_and_converges() {
    let events = [
        Event::Reconcile(1),
        Event::Reconcile(2),
        Event::Reconcile(3),
        Event::Reconcile(4),
        Event::Tick,
        Event::ClockBack,
        Event::Write(0),
        Event::Write(1),
        Event::Pause,
        Event::Heal(0),
        Event::Heal(1),
        Event::Withdraw,
    ];
    let start = State {
        record: RolloutRecord::default(),
        generation: 1,
        digest: "w".to_owned(),
        wanted: 0,
        is_paused: false,
        in_place: None,
        partly_applied: None,
        heals: [true, false],
        is_allowed: true,
        now: 0,
        rollbacks: 0,
        retries: 0,
        events: 0,
    };
    let mut seen = HashSet::new();
    let mut queue = vec![start];
    let mut rolled_back = 0;
    while let Some(state) = queue.pop() {
        state.check();
        state.converges();
        rolled_back += u8::from(rolled_back < 1 && state.rollbacks > 0);
        if state.events == EVENTS {
            continue;
        }
        for event in events {
            let next = state.after(event);
            if seen.insert(format!("{next:?}")) {
                queue.push(next);
            }
        }
    }
    assert_eq!(rolled_back, 1, "the search reaches a rollback");
}
