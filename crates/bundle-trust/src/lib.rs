//! Keys, signatures and proof of who signed what; nothing else can make a `Verified<T>`.
//! Not here: fetching signatures from a registry (bundle-oci) and which policy applies (bundle-core).

pub mod attest;
pub mod carried;
mod certified;
mod dsse;
pub mod keyless;
pub mod keys;
mod legacy;
pub mod proof;
pub mod root;
pub mod sign;
mod statement;
mod strict;
pub mod verify;

pub use proof::Verified;
