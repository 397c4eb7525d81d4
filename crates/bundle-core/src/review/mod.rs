//! Admission: parsers of specs and classes, stamps and seals, and the judge. The webhook and
//! `kubectl bundle check` gather the facts and call the same judge.

mod canonical;
pub mod class;
pub mod config_maps;
pub mod deletion;
pub mod deployment;
mod facts;
mod fields;
mod judge;
pub mod owners;
pub mod parts;
mod requester;
pub mod seal;
pub mod size;
pub mod source;
pub mod stamp;
pub mod target;
mod terms;
pub mod text;

pub use canonical::{same, spec_digest, template_hash, written_digest};
pub use class::Class;
pub use deployment::CheckedDeploymentSpec;
pub use facts::needs::{CheckedApprovalSpec, Image, RequiredLookups, needs};
pub use facts::{
    AccessReviewResult, ClassFact, ConfigMapFact, ContentFact, DeploymentFact, Kind, ReviewFacts,
    StampState, Subject,
};
pub use judge::{StampChange, Verdict, can_read_image, judge};
pub use parts::{ChangedParts, PartRequesters};
pub use requester::{Requester, service_account};
pub use seal::{
    ConfirmedFacts, SealCheckContext, SealState, SealedContent, StoredObject, adds_future_write,
    content_seal, is_written_with, last_written, seal, seal_state, sealed_content,
};
pub use source::{CheckedBundleSpec, Source};
pub use stamp::{GeneratedFor, Stamp, StampError, StampTarget};
pub use terms::{approval_terms, has_default_terms};
