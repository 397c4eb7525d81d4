//! Keeping what is installed: watches, the state of each installed object, and restoring what drifted.

pub(super) mod keep;
pub(super) mod restored;
pub(super) mod scope;
pub(super) mod states;
pub(super) mod watch;
