//! Detection of drift: watches, and the state of each installed object. `maintenance` restores
//! drifted objects.

pub(super) mod job_ends;
pub(super) mod restored;
pub(super) mod scope;
pub(super) mod states;
pub(super) mod watch;
