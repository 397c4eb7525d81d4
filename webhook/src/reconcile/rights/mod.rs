//! Permissions of the requesters: access reviews and dry runs before anything is written.
//! `install::requester_permissions` decides when they run.

pub(super) mod authorize;
pub(super) mod dry_runs;
pub(super) mod missing_rights;
pub(super) mod removal_permissions;
pub(super) mod source;
