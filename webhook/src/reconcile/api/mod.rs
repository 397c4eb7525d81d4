//! Requests to the API server about installed objects: discovery, metadata, and whole objects within bounds.

pub(super) mod discovery;
pub(super) mod object;
pub(super) mod parallel;
pub(crate) mod whole;
