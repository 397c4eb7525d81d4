//! Conditions of a status: their values, changes, and rules for `lastTransitionTime`. The condition
//! types of each kind are in `bundle_api::names`.

use serde::{Deserialize, Serialize};

/// Longest stored message in bytes. The API server rejects more than 32,768 bytes.
pub const MESSAGE_LIMIT: usize = 16_384;

/// The value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

/// One condition of a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition.
    pub status: State,
    /// Reason, as one CamelCase word.
    pub reason: String,
    /// Message for users.
    #[serde(default)]
    pub message: String,
    /// `metadata.generation` of the object that the condition describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time of the last change of `status`, in RFC 3339.
    pub last_transition_time: String,
}

/// Sets one condition. A new type is appended; an existing condition is replaced, and keeps its
/// transition time if its status is unchanged.
///
/// `now` is an RFC 3339 time in whole seconds, as Kubernetes writes it.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: State,
    reason: &str,
    message: &str,
    observed_generation: i64,
    now: &str,
) {
    let new = Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: bounded(message, MESSAGE_LIMIT),
        observed_generation,
        last_transition_time: now.to_owned(),
    };
    match conditions
        .iter_mut()
        .find(|condition| condition.kind == kind)
    {
        Some(old) if old.status == new.status => {
            *old = Condition {
                last_transition_time: std::mem::take(&mut old.last_transition_time),
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
    pub state: State,
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
        state: State,
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
        state: State,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            is_default: true,
            ..Self::new(kind, state, reason, message)
        }
    }
}

/// Returns `text`, cut at a character boundary to at most `limit` bytes. The mark ` …` shows the
/// cut.
pub fn bounded(text: &str, limit: usize) -> String {
    const MARK: &str = " …";
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &text[..end])
}

/// Returns the first `most` of `items`, separated by commas, and the number of the others.
pub fn some_of<T: std::fmt::Display>(items: &[T], most: usize) -> String {
    let shown: Vec<_> = items.iter().take(most).map(ToString::to_string).collect();
    let rest = items.len().saturating_sub(most);
    if rest == 0 {
        shown.join(", ")
    } else {
        format!("{} and {rest} more", shown.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Ready", State::False, "A", "one", 1, "t1");
        set(&mut conditions, "Ready", State::False, "B", "two", 2, "t2");
        assert_eq!(conditions.len(), 1);
        assert_eq!(
            (
                conditions[0].reason.as_str(),
                conditions[0].observed_generation,
                conditions[0].last_transition_time.as_str()
            ),
            ("B", 2, "t1")
        );
        set(&mut conditions, "Ready", State::True, "C", "three", 2, "t3");
        assert_eq!(conditions[0].last_transition_time, "t3");
        set(&mut conditions, "Healthy", State::Unknown, "D", "", 2, "t4");
        assert_eq!(
            conditions
                .iter()
                .map(|c| c.kind.as_str())
                .collect::<Vec<_>>(),
            ["Ready", "Healthy"]
        );
    }

    #[test]
    fn long_messages_are_cut_at_character_boundaries() {
        let cut = bounded(&"ü".repeat(20), 15);
        assert!(cut.len() <= 15 && cut.ends_with('…'), "{cut}");
        assert_eq!(bounded("short", 15), "short");
    }

    #[test]
    fn long_lists_end_with_the_number_of_omitted_items() {
        assert_eq!(some_of(&[1, 2, 3], 3), "1, 2, 3");
        assert_eq!(some_of(&[1, 2, 3], 1), "1 and 2 more");
    }
}
