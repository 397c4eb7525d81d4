//! Conditions of a status: when one counts as changed.
//! Not here: which conditions a kind has (bundle-api), or what is said in them.

use serde::{Deserialize, Serialize};

/// Longest message that is kept; the API server refuses more than 32,768 bytes.
pub const MESSAGE_LIMIT: usize = 16_384;

/// The value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It cannot be told.
    Unknown,
}

/// One condition, as it stands in a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: State,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
    /// The generation that it was told about.
    #[serde(default)]
    pub observed_generation: i64,
    /// When `status` last changed; RFC 3339.
    pub last_transition_time: String,
}

/// Sets one condition: appended if it is new, otherwise in its place. Its time moves only when its status does.
///
/// `now` is RFC 3339 with a precision of seconds, as Kubernetes writes it.
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
    /// The type of the condition.
    pub kind: &'static str,
    /// Its status.
    pub state: State,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// True if it is set only where nothing is said of it yet.
    pub is_default: bool,
}

impl ConditionChange {
    /// Sets the condition, whatever was said of it.
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

    /// Sets the condition if nothing is said of it yet.
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

/// `text`, cut at a character boundary so that it has at most `limit` bytes, with a mark where it was cut.
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

/// The first `most` of `items`, separated by commas, and how many more there are.
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
    fn time_moves_with_the_status_alone() {
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
    fn long_messages_are_cut_between_characters() {
        let cut = bounded(&"ü".repeat(20), 15);
        assert!(cut.len() <= 15 && cut.ends_with('…'), "{cut}");
        assert_eq!(bounded("short", 15), "short");
    }

    #[test]
    fn long_lists_say_how_much_is_left_out() {
        assert_eq!(some_of(&[1, 2, 3], 3), "1, 2, 3");
        assert_eq!(some_of(&[1, 2, 3], 1), "1 and 2 more");
    }
}
