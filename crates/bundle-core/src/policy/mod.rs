//! Whose signature a reference needs: policies, what was found, and the decision over both.
//! Not here: cryptography (bundle-trust examines signatures and keys) and fetching either (bundle-oci, the shells).

mod authority;
mod decide;
mod document;
mod found;
pub mod glob;

pub use authority::{Authority, AuthorityKind, KeySource, SecretKey, key_of_secret};
pub use decide::{
    ClassSignatures, PolicyDecision, Satisfied, SignedBy, decide, decide_unsignable,
    needs_signatures,
};
pub use document::{Mode, Policy, ReadyPolicy};
pub use found::{Accepted, KeyId, RawSignature, Rejection, SignatureFound, Unavailable, summary};
