//! Keys, signatures, attestations and logins.

mod attest;
mod files;
pub(crate) mod identity;
mod keys;
mod kms_plugins;
