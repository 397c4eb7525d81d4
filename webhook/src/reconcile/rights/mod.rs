//! Permissions of the requesters: access reviews and dry runs before anything is written.

pub(super) mod authorize;
pub(super) mod authorized;
pub(super) mod dry_runs;
pub(super) mod removal_permissions;
pub(super) mod requester_permissions;
pub(super) mod schedule;
pub(super) mod source;
