//! Permissions of the requesters: access reviews and dry runs before anything is written.

pub(super) mod authorize;
pub(super) mod authorized;
pub(super) mod dry_run_complaints;
pub(super) mod dry_run_memory;
pub(super) mod mutators;
pub(super) mod removal_rights;
pub(super) mod requester_check;
pub(super) mod requester_rights;
pub(super) mod schedule;
pub(super) mod source;
