//! Checks before content is installed: approvals, namespaces, the content itself,
//! the rules of its package, and its CustomResourceDefinitions.

pub(in crate::reconcile) mod approvals;
pub(in crate::reconcile) mod content;
pub(in crate::reconcile) mod definitions;
pub(in crate::reconcile) mod namespaces;
pub(in crate::reconcile) mod package_rules;
