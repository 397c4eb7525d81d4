//! Verbs for keys, signatures, attestations and trust roots.

pub(crate) mod attest;
pub(crate) mod hashed_file;
pub(crate) mod keys;
pub(crate) mod policy;
pub(crate) mod sign;
pub(crate) mod trust;
pub(crate) mod verify;
