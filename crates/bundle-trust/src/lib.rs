//! Keys, signatures and their verification. Only this crate can construct a `Verified<T>`, the type
//! of verified content.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests parse only their own output"
    )
)]

pub mod attest;
mod bundle;
mod certified;
mod der;
mod dsse;
mod json;
pub mod keyless;
pub mod keys;
mod legacy;
#[cfg(test)]
mod messages;
pub mod proof;
pub mod proof_annotation;
pub mod root;
pub mod sign;
mod statement;
pub mod verify;

pub use proof::Verified;
