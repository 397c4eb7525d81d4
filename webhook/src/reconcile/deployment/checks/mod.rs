//! Checks before content is installed: approvals, namespaces, source and signatures, the rules in
//! `bundle.yaml`, and CustomResourceDefinitions.

pub(in crate::reconcile) mod approvals;
pub(in crate::reconcile) mod content;
pub(in crate::reconcile) mod definitions;
pub(in crate::reconcile) mod namespaces;
pub(in crate::reconcile) mod package_rules;
