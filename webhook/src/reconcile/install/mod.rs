//! Applying objects: which object each apply is for, the phases, and what an upgrade replaces.

pub(super) mod adoption_claims;
pub(super) mod apply;
pub(super) mod collisions;
pub(super) mod executor;
pub(super) mod jobs;
pub(super) mod phases;
pub(super) mod ready;
pub(crate) mod replace;
