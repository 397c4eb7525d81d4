//! Keys, signatures and proof of who signed what; nothing else can make a `Verified<T>`.
//! Not here: fetching signatures from a registry (bundle-oci) and which policy applies (bundle-core).

mod dsse;
pub mod keys;
pub mod proof;
pub mod sign;
pub mod verify;

pub use proof::Verified;
