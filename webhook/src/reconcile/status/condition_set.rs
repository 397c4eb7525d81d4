//! The conditions of one status that is being written. Transition times are preserved where nothing
//! changed.

use bundle_core::plan::conditions::{self, ConditionChange, State};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The conditions of one object.
pub(in crate::reconcile) struct ConditionSet {
    list: Vec<conditions::Condition>,
    generation: i64,
    now: Timestamp,
}

impl ConditionSet {
    /// Starts from the recorded conditions. `now` has whole seconds, as in the Kubernetes API.
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

    /// Applies the changes of a plan.
    pub(in crate::reconcile) fn apply_all(&mut self, changes: &[ConditionChange]) {
        for change in changes {
            let is_set = self
                .list
                .iter()
                .any(|condition| condition.kind == change.kind);
            if !(change.is_default && is_set) {
                self.set(change.kind, change.state, &change.reason, &change.message);
            }
        }
    }

    /// Returns the current conditions.
    pub(in crate::reconcile) fn list(&self) -> &[conditions::Condition] {
        &self.list
    }

    /// Converts the conditions to their API type.
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

/// Returns the current time in whole seconds.
pub(in crate::reconcile) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_plans_are_those_of_the_api() {
        use bundle_api::names as api;
        use bundle_core::plan::names::{condition, phase, reason};
        for (planned, name) in [
            (condition::UNPACKED, api::condition::UNPACKED),
            (condition::VERIFIED, api::condition::VERIFIED),
            (condition::COMPATIBLE, api::condition::COMPATIBLE),
            (condition::SOURCE_MOVED, api::condition::SOURCE_MOVED),
            (
                condition::HAS_VALID_BUNDLE,
                api::condition::HAS_VALID_BUNDLE,
            ),
            (condition::INSTALLED, api::condition::INSTALLED),
            (condition::AUTHORIZED, api::condition::AUTHORIZED),
            (condition::APPROVED, api::condition::APPROVED),
            (condition::HEALTHY, api::condition::HEALTHY),
            (condition::DRIFTED, api::condition::DRIFTED),
            (condition::PROGRESSING, api::condition::PROGRESSING),
            (condition::READY, api::condition::READY),
            (reason::UNPACK_PENDING, api::reason::UNPACK_PENDING),
            (reason::UNPACKING, api::reason::UNPACKING),
            (reason::UNPACK_SUCCESSFUL, api::reason::UNPACK_SUCCESSFUL),
            (reason::UNPACK_FAILED, api::reason::UNPACK_FAILED),
            (
                reason::CREATE_DYNAMIC_WATCH_FAILED,
                api::reason::CREATE_DYNAMIC_WATCH_FAILED,
            ),
            (
                reason::INSTALLATION_SUCCEEDED,
                api::reason::INSTALLATION_SUCCEEDED,
            ),
            (reason::RIGHTS_WITHDRAWN, api::reason::RIGHTS_WITHDRAWN),
            (reason::SOURCE_MOVED, api::reason::SOURCE_MOVED),
            (reason::SOURCE_UNCHANGED, api::reason::SOURCE_UNCHANGED),
            (reason::PAUSED, api::reason::PAUSED),
            (phase::UNPACKING, api::PHASE_UNPACKING),
            (phase::FAILING, api::PHASE_FAILING),
            (phase::UNPACKED, api::PHASE_UNPACKED),
        ] {
            assert_eq!(planned, name);
        }
    }

    #[test]
    fn repeated_condition_keeps_its_transition_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut first = ConditionSet::new(&[], 1, at(10));
        first.set("Ready", State::False, "A", "a");
        let stands = first.into_api();
        let mut again = ConditionSet::new(&stands, 1, at(20));
        again.set("Ready", State::False, "A", "a");
        again.apply_all(&[ConditionChange::default("Ready", State::True, "B", "b")]);
        assert_eq!(again.into_api(), stands);
        let mut moved = ConditionSet::new(&stands, 2, at(30));
        moved.set("Ready", State::True, "A", "a");
        assert_eq!(moved.into_api()[0].last_transition_time, Time(at(30)));
    }
}
