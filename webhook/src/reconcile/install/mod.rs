//! Applying objects: the target of each apply, the rounds, and replacements in an upgrade.

pub(super) mod adoption_claims;
pub(super) mod apply;
pub(super) mod collisions;
pub(super) mod executor;
pub(super) mod jobs;
pub(super) mod phases;
pub(super) mod ready;
pub(crate) mod replace;
