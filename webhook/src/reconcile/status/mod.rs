//! Status, conditions and Events of the project's own objects.

pub(super) mod condition_set;
pub(super) mod recorders;
pub(super) mod unreadable;
pub(super) mod writer;
