//! Clients of the API server, of registries and of git servers, and external commands.

pub(crate) mod allowed_reviews;
pub mod cluster;
pub(crate) mod git;
pub(crate) mod helm;
pub mod names;
pub(crate) mod process;
pub(crate) mod recent_digests;
pub mod registries;
