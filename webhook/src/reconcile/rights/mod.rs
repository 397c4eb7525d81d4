//! Checks of the permissions of requesters: access reviews and dry runs before the pod writes an
//! object, and periodic checks of groups (`permission_groups`). `install::requester_permissions`
//! and `install::permission_cycle` decide when the other checks run.

pub(super) mod authorize;
pub(super) mod dry_runs;
pub(super) mod missing_rights;
pub(super) mod permission_groups;
pub(super) mod removal_permissions;
pub(super) mod source;
