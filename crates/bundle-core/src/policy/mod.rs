//! Signature policies: parsing, results of examined signatures, and the decision. `bundle-trust`
//! verifies the signatures. `bundle-oci` and the callers fetch the input.

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
    Authority, AuthorityKind, KeySource, Keyless, Named, RootSource, key_of_secret,
    root_of_config_map,
};
pub use decide::{
    ClassSignatures, PolicyDecision, Satisfied, SignedBy, decide, decide_unsignable, matching,
};
pub use document::{Mode, Policy};
pub use found::{
    Accepted, Meaning, RawSignature, RootId, SignatureFound, SignedAt, Signer, TimeSource,
    Unavailable, Unread, summary, summary_of_attestations,
};
pub use identity::{Identity, IdentityName, Matcher};
pub use key_id::KeyId;
pub use ready::{AcceptedSigner, Material, ReadyAuthority, ReadyPolicy};
pub use rejection::{Fault, MOST_EVIDENCE, Rejection};
