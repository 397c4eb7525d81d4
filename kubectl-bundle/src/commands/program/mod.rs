//! Verbs for this program: version and completion.

pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod version;
