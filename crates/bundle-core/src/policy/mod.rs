//! Signature policies: parsing, results of the verification of signatures, and the decision.
//! `bundle-trust` verifies the signatures. `bundle-oci` and the callers fetch the input.

mod authority;
mod decide;
mod document;
mod found;
pub mod glob;
mod identity;
mod key_id;
mod reader;
mod ready;
mod rejection;
mod threshold;

pub use authority::{
    Authority, AuthorityKind, KeySource, Keyless, ReferencedText, RootSource, key_of_secret,
    root_of_config_map,
};
pub use decide::{
    AdmittedContent, ClassSignatures, PolicyDecision, SignedBy, decide, decide_unsignable, matching,
};
pub use document::{Mode, Policy};
pub use found::{
    Meaning, NotReadReason, RawSignature, RootId, SignatureResult, SignedAt, Signer, TimeSource,
    Unavailable, ValidSignature, summary, summary_of_attestations,
};
pub use identity::{Identity, IdentityName, Matcher};
pub use key_id::KeyId;
pub use ready::{AcceptedSigner, KeyParser, ParsedAuthority, ParsedPolicy};
pub use rejection::{Fault, MOST_EVIDENCE, Rejection};
