//! Clients of the API server and of registries.

pub mod cluster;
pub mod names;
pub(crate) mod recent_digests;
pub mod registries;
