//! Facts about the image of a review: its metadata, and the verification of its signatures. The
//! metadata is a response of the registry, or is in the proof annotation of the object.

use std::sync::Arc;

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::Finding;
use bundle_core::package;
use bundle_core::policy::Policy;
use bundle_core::review::{ContentFact, Image, ReviewFacts};
use bundle_oci::registry::ImageMetadata;
use bundle_trust::{proof, proof_annotation};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::{blocking, clock};

/// State of the lookup of an image.
pub(super) enum Content<'a> {
    /// The image is not required, or was not read yet.
    NotRead,
    /// The policies could not be read, for this reason.
    PoliciesUnknown(Finding),
    /// Result or error of the lookup of the image, with the matching policies.
    Read {
        metadata: &'a Result<Arc<ImageMetadata>, Finding>,
        policies: &'a [Arc<Policy>],
        examinations: &'a proof::ExaminationCache,
        now: Timestamp,
        /// Time after which no signature is verified.
        until: Option<Instant>,
    },
}

impl<'a> Content<'a> {
    /// Adds the content and the policies to `facts`.
    pub(super) fn add_to(&self, facts: &mut ReviewFacts<'a>) {
        match self {
            Self::NotRead => {}
            Self::PoliciesUnknown(why) => {
                facts.content = ContentFact::PoliciesUnknown(why.clone());
            }
            Self::Read {
                metadata,
                policies,
                examinations,
                now,
                until,
            } => {
                let policies = policies.iter().map(AsRef::as_ref);
                match metadata {
                    Err(why) => {
                        facts.content = ContentFact::Unavailable(why.clone());
                        facts.policies = proof::matching_policies(policies, *now);
                    }
                    Ok(metadata) => {
                        let (pinned, signatures) = (&metadata.pinned, &metadata.signatures);
                        let in_time = || until.is_none_or(|until| clock::runtime_instant() < until);
                        let examined = blocking::run(|| {
                            examinations.examine_while(pinned, signatures, policies, *now, &in_time)
                        });
                        facts.policies = examined.policies;
                        facts.content = ContentFact::Found {
                            pinned: metadata.pinned.clone(),
                            package: package::PackageDescription::from_annotations(
                                &metadata.annotations,
                            )
                            .map(Box::new),
                            signatures: examined.found,
                        };
                    }
                }
            }
        }
    }
}

/// Returns the metadata of `image` from the proof annotation of `object`, instead of a response of
/// the registry. Returns `None` if the object has no proof. Fails if the proof is for another
/// image.
pub(super) fn metadata_from_proof(
    object: &Value,
    image: &Image,
) -> Option<Result<ImageMetadata, Finding>> {
    let text = proof_text(object)?;
    let field = format!("metadata.annotations[{ANNOTATION_PROOF}]");
    Some(read(text, image).map_err(|why| why.at_field(field)))
}

/// Returns the memory that [`metadata_from_proof`] needs, in bytes. Returns `None` if the object
/// has no proof, or if the proof cannot be unpacked.
pub(super) fn proof_memory(object: &Value) -> Option<u64> {
    proof_annotation::memory(proof_text(object)?).ok()
}

fn proof_text(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_PROOF].as_str()
}

fn read(text: &str, image: &Image) -> Result<ImageMetadata, Finding> {
    let (pinned, proof) = proof_annotation::open(text, &image.reference)?;
    ImageMetadata::from_manifest(pinned, proof.manifest, proof.signatures)
        .map_err(|why| proof_annotation::unusable(format!("its manifest cannot be used: {why}")))
}
