//! Dry runs of the objects of content as the requesters.

pub(in crate::reconcile) mod check;
pub(in crate::reconcile) mod failures;
