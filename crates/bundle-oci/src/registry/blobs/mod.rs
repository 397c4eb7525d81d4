//! Downloads and uploads of blobs, and pull and push of whole bundles.

pub(in crate::registry) mod download;
pub(in crate::registry) mod pull;
pub(in crate::registry) mod push;
pub(in crate::registry) mod upload;
