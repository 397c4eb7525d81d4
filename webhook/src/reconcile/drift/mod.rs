//! Detection of drift: watches of installed objects, and the state of each installed object. The
//! module `maintenance` restores drifted objects.

pub(super) mod job_ends;
pub(super) mod restored;
pub(super) mod scope;
pub(super) mod states;
pub(super) mod watch;
