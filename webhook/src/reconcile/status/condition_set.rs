//! Changes of the conditions of one object. If the status of a condition does not change, its
//! `lastTransitionTime` does not change.

use bundle_core::plan::conditions::{self, ConditionChange, ConditionStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The conditions of one object, before they are written to the status.
pub(in crate::reconcile) struct ConditionSet {
    list: Vec<Condition>,
    generation: i64,
    now: Timestamp,
}

impl ConditionSet {
    /// Creates the set from the conditions in the stored status. `now` must have whole seconds,
    /// because times in the Kubernetes API have whole seconds.
    pub(in crate::reconcile) fn new(old: &[Condition], generation: i64, now: Timestamp) -> Self {
        Self {
            list: old.to_vec(),
            generation,
            now,
        }
    }

    /// Sets the condition of type `kind`.
    pub(in crate::reconcile) fn set(
        &mut self,
        kind: &str,
        state: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        conditions::set(
            &mut self.list,
            kind,
            state,
            reason,
            message,
            self.generation,
            &Time(self.now),
        );
    }

    /// Applies `changes`. A default change has no effect if the condition already exists.
    pub(in crate::reconcile) fn apply_all(&mut self, changes: &[ConditionChange]) {
        for change in changes {
            let is_set = self
                .list
                .iter()
                .any(|condition| condition.type_ == change.kind);
            if !(change.is_default && is_set) {
                self.set(change.kind, change.state, &change.reason, &change.message);
            }
        }
    }

    /// Sets `observedGeneration` of existing conditions of these types to the current generation.
    pub(in crate::reconcile) fn confirm(&mut self, kinds: &[&str]) {
        for condition in &mut self.list {
            if kinds.contains(&condition.type_.as_str()) {
                condition.observed_generation = Some(self.generation);
            }
        }
    }

    /// Returns the conditions with all changes.
    pub(in crate::reconcile) fn list(&self) -> &[Condition] {
        &self.list
    }

    /// Returns the conditions for the field `status.conditions`.
    pub(in crate::reconcile) fn into_api(self) -> Vec<Condition> {
        self.list
    }
}

/// Returns the current time in whole seconds.
pub(in crate::reconcile) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_condition_keeps_its_transition_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut first = ConditionSet::new(&[], 1, at(10));
        first.set("Ready", ConditionStatus::False, "A", "a");
        let stands = first.into_api();
        let mut again = ConditionSet::new(&stands, 1, at(20));
        again.set("Ready", ConditionStatus::False, "A", "a");
        again.apply_all(&[ConditionChange::default(
            "Ready",
            ConditionStatus::True,
            "B",
            "b",
        )]);
        assert_eq!(again.into_api(), stands);
        let mut moved = ConditionSet::new(&stands, 2, at(30));
        moved.set("Ready", ConditionStatus::True, "A", "a");
        assert_eq!(moved.into_api()[0].last_transition_time, Time(at(30)));
        let mut confirmed = ConditionSet::new(&stands, 2, at(40));
        confirmed.confirm(&["Ready", "Missing"]);
        let [found] = &confirmed.into_api()[..] else {
            panic!("a condition was added");
        };
        assert_eq!(found.observed_generation, Some(2));
        assert_eq!(found.last_transition_time, Time(at(10)));
    }
}
