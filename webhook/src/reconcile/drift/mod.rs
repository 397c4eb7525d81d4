//! Maintenance of installed content: watches, the state of each installed object, and restoring
//! drifted objects.

pub(super) mod health;
pub(super) mod keep;
pub(super) mod restored;
pub(super) mod scope;
pub(super) mod states;
pub(super) mod watch;
