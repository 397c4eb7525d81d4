//! Installing content: the permissions of the requesters, the target of each apply, the rounds, the
//! record of the objects, unchanged objects, and replacements in an upgrade.

pub(super) mod authorized;
pub(super) mod collisions;
pub(super) mod executor;
pub(super) mod health;
pub(super) mod phases;
pub(super) mod ready;
pub(super) mod record;
pub(super) mod replace;
pub(super) mod requester_permissions;
pub(super) mod unchanged;
