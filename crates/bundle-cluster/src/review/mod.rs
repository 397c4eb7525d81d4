//! Admission review of one object, from its required facts to the verdict. The webhook and `kubectl
//! bundle check` both call [`verdict`], each with its own lookups. `bundle_core::review` contains
//! the rules.

mod content;
mod facts;

use std::ops::Deref;
use std::sync::Arc;

use bundle_core::diagnostic::Finding;
use bundle_core::names::KubeName;
use bundle_core::policy::Policy;
use bundle_core::review::{
    AccessReviewResult, ClassFact, Image, Requester, Subject, Verdict, can_read_image, judge, needs,
};
use bundle_core::rights::AccessReview;
use bundle_core::version::ServerVersion;
use bundle_oci::registry::ImageMetadata;
use bundle_trust::{proof, proof_annotation};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use self::content::{Content, metadata_from_proof, proof_memory};
use self::facts::gather;

pub use self::facts::on_class;

/// Lookups in the API server that a review needs.
pub trait ReviewLookups: Sync {
    /// BundleDeployment in memory. Users choose its size, so an implementation can limit the number
    /// of these values. Callers must drop the value before their next lookup.
    type HeldDeployment: Deref<Target = Value> + Send + Sync;
    /// Returns the namespace of the pod, which also contains Secrets and ConfigMaps that specs
    /// name.
    fn system_namespace(&self) -> &str;
    /// Returns the namespace of the pod's keys and inventories.
    fn state_namespace(&self) -> &str;
    /// Returns the version of the API server. Returns `None` until the version is known.
    fn server(&self) -> Option<ServerVersion>;
    /// Returns a class by name.
    fn class(&self, name: &KubeName) -> impl Future<Output = ClassFact> + Send;
    /// Checks whether `requester` has the permission that `question` describes.
    fn has_permission(
        &self,
        requester: &Requester,
        question: &AccessReview,
    ) -> impl Future<Output = AccessReviewResult> + Send;
    /// Returns the parts of a BundleDeployment that reviews use: spec, stamp and seal, uid,
    /// generation and times. Waits while too many BundleDeployments are in memory, in total or for
    /// `requester`.
    fn deployment(
        &self,
        requester: &Requester,
        name: &KubeName,
    ) -> impl Future<Output = Result<Option<Self::HeldDeployment>, Finding>> + Send;
    /// Returns true if a ConfigMap of the system namespace is immutable. Returns `None` if the
    /// ConfigMap does not exist. Waits while too many ConfigMaps are being read, in total or for
    /// `requester`.
    fn immutable(
        &self,
        requester: &Requester,
        name: &KubeName,
    ) -> impl Future<Output = Result<Option<bool>, Finding>> + Send;
    /// Returns the current time, for trust roots and stamps.
    fn now(&self) -> Timestamp;
    /// Returns the cache of signature verifications of this process.
    fn examinations(&self) -> &proof::ExaminationCache;
}

/// SignaturePolicies that match an image.
#[derive(Debug, Clone)]
pub struct MatchingPolicies {
    /// Policies that match the image.
    pub policies: Vec<Arc<Policy>>,
    /// Number that changes with each change of a policy in the cluster.
    pub generation: u64,
}

/// Lookups of the image that one review needs, and of the policies for this image.
pub trait ImageLookups: Sync {
    /// Permission to verify the signatures of one image. Dropping this value releases the
    /// permission.
    type VerificationSlot: Send;
    /// Returns the policies that match `image`. Called once, after all other facts are known.
    fn policies(&self, image: &Image) -> Result<MatchingPolicies, Finding>;
    /// Reads `image` from the registry, and its signatures if policies match.
    fn read_image(
        &self,
        image: &Image,
        policies: &MatchingPolicies,
    ) -> impl Future<Output = Result<Arc<ImageMetadata>, Finding>> + Send;
    /// Reserves `bytes` bytes of memory for the proof until the review ends. Returns an error if
    /// the memory is not available.
    fn reserve(&self, bytes: u64) -> impl Future<Output = Result<(), Finding>> + Send;
    /// Clears cached responses of the registry after the review did not admit the image, because
    /// the image can be signed at any time.
    fn forget(&self, image: &Image, policies: &MatchingPolicies)
    -> impl Future<Output = ()> + Send;
    /// Returns true if the registry is contacted even if other facts already reject the object.
    fn reads_rejected_images(&self) -> bool;
    /// Waits until the signatures of the image can be verified, and returns the permission to
    /// verify them. Called before each verification.
    fn verification_slot(
        &self,
    ) -> impl Future<Output = Result<Self::VerificationSlot, Finding>> + Send;
    /// Returns the deadline of the review, or `None` if the review has no deadline. No verification
    /// of signatures starts after the deadline.
    fn until(&self) -> Option<Instant>;
}

/// Looks up the facts for the review of `subject`, and returns the verdict. The image is the last
/// fact: a registry that the requester chose is contacted only if no other fact rejects the object.
pub async fn verdict<L: ReviewLookups, I: ImageLookups>(
    lookups: &L,
    images: &I,
    subject: &Subject<'_>,
    requester: &Requester,
) -> Verdict {
    let needs = needs(subject);
    let gathered = gather(lookups, requester, &needs).await;
    let without_content = gathered.facts(&Content::NotRead);
    let image = match &needs.image {
        Some(image)
            if images.reads_rejected_images() || can_read_image(subject, &without_content) =>
        {
            image
        }
        _ => return judge(subject, &without_content),
    };
    // The policies are read once for the whole review, after all other lookups.
    let matching = match images.policies(image) {
        Ok(known) => known,
        Err(why) => return judge(subject, &gathered.facts(&Content::PoliciesUnknown(why))),
    };
    let judged = |metadata: &Result<Arc<ImageMetadata>, Finding>| {
        let content = Content::Read {
            metadata,
            policies: &matching.policies,
            examinations: lookups.examinations(),
            now: lookups.now(),
            until: images.until(),
        };
        judge(subject, &gathered.facts(&content))
    };
    // The memory is reserved before the proof is unpacked, because parallel reviews share a memory
    // limit.
    if let Some(bytes) = proof_memory(subject.new)
        && let Err(why) = images.reserve(bytes).await
    {
        return judged(&Err(why));
    }
    let unusable = match metadata_from_proof(subject.new, image) {
        Some(Err(why)) => Some(why),
        Some(metadata) => {
            let metadata = metadata.map(Arc::new);
            let slot = verification_slot(images, &metadata, &matching).await;
            let verdict = match slot {
                Ok(_slot) => judged(&metadata),
                Err(why) => return Verdict::Unknown(why.into()),
            };
            // Only an admitting verdict is final. The registry can have signatures that the proof
            // does not contain, so any other verdict can change.
            if matches!(verdict, Verdict::Admit { .. }) {
                return verdict;
            }
            None
        }
        None => None,
    };
    let metadata = images.read_image(image, &matching).await;
    let slot = verification_slot(images, &metadata, &matching).await;
    let mut verdict = match slot {
        Ok(_slot) => judged(&metadata),
        Err(why) => return Verdict::Unknown(why.into()),
    };
    if !matches!(verdict, Verdict::Admit { .. }) {
        images.forget(image, &matching).await;
    }
    if let Some(why) = unusable {
        let why = proof_annotation::as_ignored(why);
        match &mut verdict {
            Verdict::Admit { warnings, .. } => warnings.push(why),
            Verdict::Refuse(findings) | Verdict::Unknown(findings) => findings.push(why),
        }
    }
    verdict
}

/// Waits for permission to verify signatures. Returns `None` if no signature must be verified: no
/// policy matches, or the image has no signatures.
async fn verification_slot<I: ImageLookups>(
    images: &I,
    metadata: &Result<Arc<ImageMetadata>, Finding>,
    matching: &MatchingPolicies,
) -> Result<Option<I::VerificationSlot>, Finding> {
    let has_signatures = metadata.as_ref().is_ok_and(|image| {
        let signatures = image.signatures.as_ref();
        signatures.is_ok_and(|signatures| !signatures.is_empty())
    });
    if matching.policies.is_empty() || !has_signatures {
        return Ok(None);
    }
    images.verification_slot().await.map(Some)
}
