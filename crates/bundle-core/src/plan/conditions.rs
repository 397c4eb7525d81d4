//! Conditions of a status: their values, changes, and rules for `lastTransitionTime`. The condition
//! types of each kind are in `bundle_api::names`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::text::visible;
pub use crate::text::{bounded, some_of};

/// Maximum length of a stored message, in bytes. The API server rejects messages of more than
/// 32,768 bytes.
const MESSAGE_LIMIT: usize = 16_384;

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition has status `True`.
    True,
    /// The condition has status `False`.
    False,
    /// The condition has status `Unknown`.
    Unknown,
}

impl ConditionStatus {
    /// Returns the status of a condition. Any text except `True` and `False` counts as `Unknown`.
    pub fn of(condition: &Condition) -> Self {
        match condition.status.as_str() {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }

    /// Returns the status as text: `True`, `False` or `Unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Sets one condition. A condition of a new type is appended. An existing condition is replaced,
/// and keeps its transition time if its status is unchanged.
///
/// `now` must have whole seconds, because Kubernetes stores times in whole seconds. Characters of
/// `message` that a terminal does not show are escaped.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    observed_generation: i64,
    now: &Time,
) {
    let new = Condition {
        type_: kind.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        // The message can contain text from the content, for example control characters.
        message: bounded(&visible(message), MESSAGE_LIMIT),
        observed_generation: Some(observed_generation),
        last_transition_time: now.clone(),
    };
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == kind)
    {
        Some(old) if old.status == new.status => {
            *old = Condition {
                last_transition_time: old.last_transition_time.clone(),
                ..new
            };
        }
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// A change of one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionChange {
    /// Condition type.
    pub kind: &'static str,
    /// New status.
    pub state: ConditionStatus,
    /// New reason.
    pub reason: String,
    /// New message.
    pub message: String,
    /// True if the change is ignored when the condition already exists.
    pub is_default: bool,
}

impl ConditionChange {
    /// Returns a change that replaces an existing condition.
    pub fn new(
        kind: &'static str,
        state: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            state,
            reason: reason.into(),
            message: message.into(),
            is_default: false,
        }
    }

    /// Returns a change that is ignored if the condition already exists.
    pub fn default(
        kind: &'static str,
        state: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            is_default: true,
            ..Self::new(kind, state, reason, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn hidden_characters_of_messages_are_escaped() {
        let mut conditions = Vec::new();
        let message = "object \"a\u{1b}]0;title\u{7}\u{202e}\" is missing";
        let status = ConditionStatus::False;
        set(&mut conditions, "Ready", status, "A", message, 1, &at(1));
        assert_eq!(
            conditions[0].message,
            "object \"a\\u{1b}]0;title\\u{7}\\u{202e}\" is missing"
        );
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut conditions = Vec::new();
        for (kind, status, reason, generation, second) in [
            ("Ready", ConditionStatus::False, "A", 1, 1),
            ("Ready", ConditionStatus::False, "B", 2, 2),
        ] {
            set(
                &mut conditions,
                kind,
                status,
                reason,
                "",
                generation,
                &at(second),
            );
        }
        assert_eq!(conditions.len(), 1);
        let first = &conditions[0];
        assert_eq!(
            (first.reason.as_str(), first.observed_generation),
            ("B", Some(2))
        );
        assert_eq!(first.last_transition_time, at(1));
        set(
            &mut conditions,
            "Ready",
            ConditionStatus::True,
            "C",
            "",
            2,
            &at(3),
        );
        assert_eq!(conditions[0].last_transition_time, at(3));
        assert_eq!(ConditionStatus::of(&conditions[0]), ConditionStatus::True);
        set(
            &mut conditions,
            "Healthy",
            ConditionStatus::Unknown,
            "D",
            "",
            2,
            &at(4),
        );
        let kinds: Vec<&str> = conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(kinds, ["Ready", "Healthy"]);
    }
}
