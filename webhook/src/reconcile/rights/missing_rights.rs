//! The missing permissions of a requester for content, and the error that lists them.

use std::collections::BTreeSet;

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::rights::{self, AccessReview};

use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// Maximum number of RBAC rules in a message.
const MAX_RULES: usize = 40;
/// Maximum number of missing permissions that are collected for a message.
pub(super) const MAX_PERMISSIONS: usize = 1_000;
/// Maximum total length of the resource names in the missing permissions, in bytes.
const MAX_NAMES: usize = 256 << 10;

/// The missing permissions of a requester for content. Only a limited number is collected, because
/// a message lists only a limited number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::reconcile) struct MissingRights {
    questions: Vec<AccessReview>,
    /// Total length of the resource names in `questions`, in bytes.
    names: usize,
    /// True if further permissions are missing that are not collected.
    is_full: bool,
    /// Roles that grant permissions which the requester does not have. The message does not contain
    /// the rules of these roles, because the requester has no permission to read them.
    unreadable_roles: BTreeSet<String>,
}

impl MissingRights {
    pub(super) fn is_empty(&self) -> bool {
        self.questions.is_empty() && self.unreadable_roles.is_empty() && !self.is_full
    }

    /// Returns true if further missing permissions would not change the message.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Fails with an error that lists the missing permissions of `user`, if permissions are
    /// missing.
    pub(in crate::reconcile) fn check(&self, user: &str) -> Result<(), ReconcileError> {
        if self.is_empty() {
            return Ok(());
        }
        Err(ReconcileError::new(
            codes::install::NOT_AUTHORIZED,
            reason::INSTALL_FAILED,
            format!(
                "{user} lacks permissions for this content; missing: {} (grant them, or use a class that allows the content)",
                self.text(user)
            ),
            RetryPolicy::Slowly,
        ))
    }

    pub(in crate::reconcile) fn push(&mut self, question: AccessReview) {
        let length = match &question {
            AccessReview::Resource { name, .. } => name.as_ref().map_or(0, String::len),
            AccessReview::Path { path, .. } => path.len(),
        };
        if self.questions.len() == MAX_PERMISSIONS || self.names + length > MAX_NAMES {
            self.is_full = true;
            return;
        }
        self.names += length;
        self.questions.push(question);
    }

    pub(super) fn extend(&mut self, questions: Vec<AccessReview>) {
        for question in questions {
            self.push(question);
        }
    }

    pub(super) fn push_unreadable_role(&mut self, role: String) {
        if self.unreadable_roles.len() == MAX_RULES {
            self.is_full = true;
        } else {
            self.unreadable_roles.insert(role);
        }
    }

    fn text(&self, user: &str) -> String {
        let mut parts = Vec::new();
        if !self.questions.is_empty() {
            parts.push(rules(&self.questions));
        }
        if !self.unreadable_roles.is_empty() {
            let roles: Vec<&String> = self.unreadable_roles.iter().collect();
            parts.push(format!(
                "the permissions of these roles, which exceed those of {user}, and whose rules {user} has no permission to read: {}",
                some_of(&roles, MAX_RULES)
            ));
        }
        if self.is_full {
            parts.push("and others".to_owned());
        }
        parts.join("; ")
    }
}

/// Formats missing permissions as at most [`MAX_RULES`] RBAC rules.
pub(in crate::reconcile) fn rules(missing: &[AccessReview]) -> String {
    let rules = rights::compact(missing);
    let mut text: Vec<String> = rules
        .iter()
        .take(MAX_RULES)
        .map(ToString::to_string)
        .collect();
    if rules.len() > MAX_RULES {
        text.push(format!("and {} more", rules.len() - MAX_RULES));
    }
    text.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str) -> AccessReview {
        AccessReview::resource("get", "", "configmaps", Some("home"), Some(name))
    }

    #[test]
    fn keeps_a_bounded_number_of_missing_permissions() {
        let mut missing = MissingRights::default();
        for number in 0..MAX_PERMISSIONS {
            missing.push(question(&number.to_string()));
        }
        assert!(!missing.is_full());
        missing.push(question("other"));
        assert_eq!(missing.questions.len(), MAX_PERMISSIONS);
        assert!(missing.is_full());
        assert!(missing.text("ana").ends_with("; and others"));
    }

    #[test]
    fn content_with_only_a_long_name_is_not_allowed() {
        let mut missing = MissingRights::default();
        missing.push(question(&"n".repeat(MAX_NAMES + 1)));
        assert!(missing.questions.is_empty() && !missing.is_empty());
        assert_eq!(missing.text("ana"), "and others");
    }

    #[test]
    fn keeps_a_bounded_number_of_unreadable_roles() {
        let mut missing = MissingRights::default();
        for number in 0..=MAX_RULES {
            missing.push_unreadable_role(format!("Role home/{number}"));
        }
        assert_eq!(missing.unreadable_roles.len(), MAX_RULES);
        assert!(missing.is_full());
    }
}
