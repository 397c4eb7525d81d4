//! Checks before content is installed: approvals, namespaces, and the content itself.

pub(in crate::reconcile) mod approvals;
pub(in crate::reconcile) mod content;
pub(in crate::reconcile) mod namespaces;
