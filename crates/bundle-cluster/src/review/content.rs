//! Facts about the image of a review: the response of its registry or the proof on the object, and
//! the verification of its signatures.

use std::sync::Arc;

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::Finding;
use bundle_core::package;
use bundle_core::policy::Policy;
use bundle_core::review::{ContentFact, Facts, Image};
use bundle_oci::registry::ImageMetadata;
use bundle_trust::{carried, proof};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::{clock, heavy};

/// State of the lookup of an image.
pub(super) enum Content<'a> {
    /// Not required, or not looked up yet.
    NotAsked,
    /// The policies could not be read, for this reason.
    PoliciesUnknown(Finding),
    /// Result or error of the lookup, under the matching policies.
    Seen {
        looked: &'a Result<Arc<ImageMetadata>, Finding>,
        policies: &'a [Arc<Policy>],
        examinations: &'a proof::Memory,
        now: Timestamp,
        /// Time after which no signature is verified.
        until: Option<Instant>,
    },
}

impl<'a> Content<'a> {
    /// Adds content and policies to the other facts.
    pub(super) fn add_to(&self, facts: &mut Facts<'a>) {
        match self {
            Self::NotAsked => {}
            Self::PoliciesUnknown(why) => {
                facts.content = ContentFact::PoliciesUnknown(why.clone());
            }
            Self::Seen {
                looked,
                policies,
                examinations,
                now,
                until,
            } => {
                let policies = policies.iter().map(AsRef::as_ref);
                match looked {
                    Err(why) => {
                        facts.content = ContentFact::Unavailable(why.clone());
                        facts.policies = proof::unexamined(policies, *now);
                    }
                    Ok(looked) => {
                        let (pinned, signatures) = (&looked.pinned, &looked.signatures);
                        let in_time = || until.is_none_or(|until| clock::runtime_instant() < until);
                        let examined = heavy::run(|| {
                            examinations.examine_while(pinned, signatures, policies, *now, &in_time)
                        });
                        facts.policies = examined.policies;
                        facts.content = ContentFact::Found {
                            pinned: looked.pinned.clone(),
                            package: package::Facts::from_annotations(&looked.annotations)
                                .map(Box::new),
                            signatures: examined.found,
                        };
                    }
                }
            }
        }
    }
}

/// Returns the metadata of `image` from the proof annotation of `object`, in place of a response of
/// the registry; `None` without a proof. Fails if the proof is for another image.
pub(super) fn carried_look(
    object: &Value,
    image: &Image,
) -> Option<Result<ImageMetadata, Finding>> {
    let text = proof_text(object)?;
    let field = format!("metadata.annotations[{ANNOTATION_PROOF}]");
    Some(read(text, image).map_err(|why| why.at_field(field)))
}

/// Returns the memory that [`carried_look`] needs. `None` without a proof that can be unpacked.
pub(super) fn proof_memory(object: &Value) -> Option<u64> {
    carried::memory(proof_text(object)?).ok()
}

fn proof_text(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_PROOF].as_str()
}

fn read(text: &str, image: &Image) -> Result<ImageMetadata, Finding> {
    let (pinned, carried) = carried::open(text, &image.reference)?;
    ImageMetadata::from_manifest(pinned, carried.manifest, carried.signatures)
        .map_err(|why| carried::unusable(format!("its manifest cannot be used: {why}")))
}
