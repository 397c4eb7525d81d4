//! The scope and the result of a restore. A restore applies drifted objects again.

use std::collections::BTreeSet;

/// The objects that a restore handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) enum RestoreScope<'k> {
    /// All drifted objects of the content.
    All,
    /// Only drifted objects with these object keys.
    Only(&'k BTreeSet<String>),
    /// All drifted objects except the objects with these object keys.
    Except(&'k BTreeSet<String>),
}

impl RestoreScope<'_> {
    pub(in crate::reconcile) fn has(self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(keys) => keys.contains(key),
            Self::Except(keys) => !keys.contains(key),
        }
    }
}

/// An object that was restored, and the cause of its drift.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reconcile) struct RestoredObject {
    pub(in crate::reconcile) key: String,
    /// The cause of the drift. `None` if the cause is unknown.
    pub(in crate::reconcile) cause: Option<String>,
}

impl std::fmt::Display for RestoredObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{} ({cause})", self.key),
            None => f.write_str(&self.key),
        }
    }
}
