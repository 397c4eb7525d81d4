//! Verbs for this program: version, completion and man pages.

pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod man;
pub(crate) mod version;
