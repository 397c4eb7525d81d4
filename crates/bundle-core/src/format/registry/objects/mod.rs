//! Objects that the conversion creates.

pub(super) mod additions;
mod names;
pub(super) mod overrides;
pub(super) mod permissions;
pub(super) mod webhooks;
