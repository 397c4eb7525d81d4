//! Clients of the API server, of registries and of git servers.

pub mod cluster;
pub(crate) mod git;
pub mod names;
pub(crate) mod recent_digests;
pub mod registries;
