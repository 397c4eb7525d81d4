//! A bundle on disk and its location: input formats, packing, git provenance.

pub(crate) mod content;
pub(crate) mod folder;
pub(crate) mod git;
pub(crate) mod input;
pub(crate) mod location;
pub(crate) mod packing;
pub(crate) mod platform;
