//! Keys, signatures, attestations and logins.

mod attest;
mod files;
mod identity;
mod keys;
mod kms_plugins;
