//! Status, conditions, Events and seals of the project's own objects.

pub(super) mod condition_set;
pub(super) mod recorders;
pub(super) mod seal;
pub(super) mod sealed;
pub(super) mod unreadable;
pub(super) mod writer;
