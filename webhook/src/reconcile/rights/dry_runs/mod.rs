//! Dry runs of content as its requesters.

pub(in crate::reconcile) mod check;
pub(in crate::reconcile) mod failures;
pub(in crate::reconcile) mod mutators;
