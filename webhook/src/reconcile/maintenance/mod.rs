//! Maintenance of installed content: restoring drifted objects, health checks, and expired Jobs.
//! `drift` detects the changes.

pub(super) mod health;
mod jobs;
pub(super) mod partial;
pub(super) mod restore;
