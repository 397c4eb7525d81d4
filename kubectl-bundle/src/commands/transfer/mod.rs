//! Verbs that copy bundles between registries, layouts and archives.

pub(crate) mod arguments;
pub(crate) mod copy;
pub(crate) mod copying;
pub(crate) mod images;
pub(crate) mod load;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod save;
