//! Installation of content: permissions of requesters, targets of applies, rounds of applies,
//! records of objects, unchanged objects, and replacements of objects.

pub(super) mod authorized;
pub(super) mod collisions;
pub(super) mod executor;
pub(super) mod health;
pub(super) mod permission_cycle;
pub(super) mod phases;
pub(super) mod ready;
pub(super) mod record;
pub(super) mod replace;
pub(super) mod requester_permissions;
pub(super) mod unchanged;
