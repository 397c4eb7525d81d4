//! Checks of the permissions of requesters: access reviews and dry runs before the pod writes an
//! object. `install::requester_permissions` decides when these checks run.

pub(super) mod authorize;
pub(super) mod dry_runs;
pub(super) mod missing_rights;
pub(super) mod removal_permissions;
pub(super) mod source;
