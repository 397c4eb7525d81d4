//! Verbs for keys, signatures, attestations and trust roots.

pub(crate) mod arguments;
pub(crate) mod attest;
mod hashed_file;
pub(crate) mod keys;
pub(crate) mod policy;
mod predicate;
pub(crate) mod sign;
pub(crate) mod trust;
pub(crate) mod verify;
