//! The conditions of one status while it is being written: every type set, times kept where nothing changed.
//! Not here: what is said in them, or the write itself (status::writer).

use bundle_core::plan::conditions::{self, State};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The conditions of one object.
pub(in crate::reconcile) struct ConditionSet {
    list: Vec<conditions::Condition>,
    generation: i64,
    now: Timestamp,
}

impl ConditionSet {
    /// Starts from what stands there. `now` has whole seconds, as Kubernetes keeps times.
    pub(in crate::reconcile) fn new(old: &[Condition], generation: i64, now: Timestamp) -> Self {
        Self {
            list: old.iter().map(from_api).collect(),
            generation,
            now,
        }
    }

    /// Sets one condition.
    pub(in crate::reconcile) fn set(
        &mut self,
        kind: &str,
        state: State,
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
            &self.now.to_string(),
        );
    }

    /// Sets one condition if nothing is said of it yet.
    pub(in crate::reconcile) fn set_if_new(
        &mut self,
        kind: &str,
        state: State,
        reason: &str,
        message: &str,
    ) {
        if self.get(kind).is_none() {
            self.set(kind, state, reason, message);
        }
    }

    /// What is said of one type now.
    pub(in crate::reconcile) fn get(&self, kind: &str) -> Option<&conditions::Condition> {
        self.list.iter().find(|condition| condition.kind == kind)
    }

    /// Whether a condition holds.
    pub(in crate::reconcile) fn is_true(&self, kind: &str) -> bool {
        self.get(kind)
            .is_some_and(|condition| condition.status == State::True)
    }

    /// As the API has them.
    pub(in crate::reconcile) fn into_api(self) -> Vec<Condition> {
        let now = self.now;
        self.list
            .into_iter()
            .map(|condition| Condition {
                type_: condition.kind,
                status: match condition.status {
                    State::True => "True",
                    State::False => "False",
                    State::Unknown => "Unknown",
                }
                .to_owned(),
                reason: condition.reason,
                message: condition.message,
                observed_generation: Some(condition.observed_generation),
                last_transition_time: Time(condition.last_transition_time.parse().unwrap_or(now)),
            })
            .collect()
    }
}

fn from_api(condition: &Condition) -> conditions::Condition {
    conditions::Condition {
        kind: condition.type_.clone(),
        status: match condition.status.as_str() {
            "True" => State::True,
            "False" => State::False,
            _ => State::Unknown,
        },
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        observed_generation: condition.observed_generation.unwrap_or_default(),
        last_transition_time: condition.last_transition_time.0.to_string(),
    }
}

/// The current time in whole seconds.
pub(in crate::reconcile) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_equals_what_stands_there() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut first = ConditionSet::new(&[], 1, at(10));
        first.set("Ready", State::False, "A", "a");
        let stands = first.into_api();
        let mut again = ConditionSet::new(&stands, 1, at(20));
        again.set("Ready", State::False, "A", "a");
        again.set_if_new("Ready", State::True, "B", "b");
        assert!(!again.is_true("Ready"));
        assert_eq!(again.into_api(), stands);
        let mut moved = ConditionSet::new(&stands, 2, at(30));
        moved.set("Ready", State::True, "A", "a");
        assert_eq!(moved.into_api()[0].last_transition_time, Time(at(30)));
    }
}
