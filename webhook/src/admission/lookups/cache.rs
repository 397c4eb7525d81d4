//! Short-lived caches of reviews: a verdict between the mutating and the validating call, and
//! images of admitted objects. Each later request is judged again; `bundle_trust::proof` caches the
//! examinations of signatures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::Finding;
use bundle_core::names::KubeName;
use bundle_core::reference::Digest;
use bundle_core::review::{Image, Requester, Subject, Verdict, spec_digest};
use bundle_oci::registry::ImageMetadata;
use moka::future::Cache;

/// Lifetime of a verdict. The validating call follows within milliseconds.
const VERDICT_TTL: Duration = Duration::from_secs(5);
/// Lifetime of an image. Signatures are only added, and are verified again before an installation.
const IMAGE_TTL: Duration = Duration::from_secs(60);
/// Maximum size of cached images and signatures, in bytes.
const MAX_IMAGE_BYTES: u64 = 8 << 20;
/// Additional bytes that are counted for each text.
const TEXT_OVERHEAD: usize = 256;

/// The two caches. Clones share them.
#[derive(Clone)]
pub(in crate::admission) struct ReviewCache {
    verdicts: Cache<Digest, Verdict>,
    images: Cache<ImageKey, Arc<ImageMetadata>>,
}

/// An image by digest, read for a requester with a pull secret, for a generation of the policies.
/// Requesters share no read: it can fail because the memory of one requester is used up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::admission) struct ImageKey {
    reference: String,
    requester: String,
    pull_secret: Option<KubeName>,
    policies: u64,
}

impl ImageKey {
    /// Returns the key of an image that is referenced by digest. A tag can move, so an image by tag
    /// has no key.
    pub(in crate::admission) fn of(image: &Image, requester: &str, policies: u64) -> Option<Self> {
        let pinned = image.reference.pinned()?;
        Some(Self {
            reference: pinned.without_tag(),
            requester: requester.to_owned(),
            pull_secret: image.pull_secret.clone(),
            policies,
        })
    }
}

/// A result that is not cached.
#[derive(Debug, Clone)]
enum UncachedResult {
    /// The image without its signatures.
    Half(Arc<ImageMetadata>),
    /// The lookup failed.
    Nothing(Finding),
}

impl Default for ReviewCache {
    fn default() -> Self {
        Self {
            verdicts: Cache::builder()
                .max_capacity(1024)
                .time_to_live(VERDICT_TTL)
                .build(),
            images: Cache::builder()
                .max_capacity(MAX_IMAGE_BYTES)
                .weigher(|_, looked: &Arc<ImageMetadata>| {
                    u32::try_from(weight(looked)).unwrap_or(u32::MAX)
                })
                .time_to_live(IMAGE_TTL)
                .build(),
        }
    }
}

impl ReviewCache {
    /// Stores a verdict for the validating call of the same request.
    pub(in crate::admission) async fn insert(&self, key: Digest, verdict: Verdict) {
        self.verdicts.insert(key, verdict).await;
    }

    /// Removes and returns a verdict. It is used once, so that a retried request gets a new one.
    pub(in crate::admission) async fn take(&self, key: &Digest) -> Option<Verdict> {
        self.verdicts.remove(key).await
    }

    /// Returns the image with this key. If it is not cached, `asking` reads it. Concurrent lookups
    /// of one key share a single read. Incomplete results are not cached.
    pub(in crate::admission) async fn look(
        &self,
        key: Option<&ImageKey>,
        asking: impl Future<Output = Result<ImageMetadata, Finding>>,
    ) -> Result<Arc<ImageMetadata>, Finding> {
        let asking = async { asking.await.map(Arc::new) };
        let Some(key) = key else {
            return asking.await;
        };
        let whole = async {
            match asking.await {
                Ok(looked) if looked.signatures.is_ok() => Ok(looked),
                Ok(looked) => Err(UncachedResult::Half(looked)),
                Err(why) => Err(UncachedResult::Nothing(why)),
            }
        };
        match self.images.try_get_with_by_ref(key, whole).await {
            Ok(looked) => Ok(looked),
            Err(unkept) => match Arc::unwrap_or_clone(unkept) {
                UncachedResult::Half(looked) => Ok(looked),
                UncachedResult::Nothing(why) => Err(why),
            },
        }
    }

    /// Removes the metadata of an image, because someone can sign an image after its rejection.
    pub(in crate::admission) async fn forget(&self, key: &ImageKey) {
        self.images.invalidate(key).await;
    }
}

fn weight(looked: &ImageMetadata) -> usize {
    let texts = |map: &BTreeMap<String, String>| {
        let each = map.iter();
        each.map(|(name, text)| name.len() + text.len() + TEXT_OVERHEAD)
            .sum::<usize>()
    };
    let signatures = looked.signatures.iter().flatten();
    let signatures = signatures.map(|signature| {
        signature.bytes.len()
            + signature.artifact_type.len()
            + texts(&signature.annotations)
            + TEXT_OVERHEAD
    });
    texts(&looked.annotations) + signatures.sum::<usize>() + TEXT_OVERHEAD
}

/// Returns a digest over all inputs of a verdict except the state of the cluster.
pub(in crate::admission) fn key(subject: &Subject<'_>, requester: &Requester) -> Digest {
    let old = subject.old_spec().map(spec_digest);
    // Hashed, because the proof can be as long as the request.
    let proof = subject.new["metadata"]["annotations"][ANNOTATION_PROOF].as_str();
    let proof = proof.map(|text| Digest::of(text.as_bytes()));
    let named = serde_json::json!([
        subject.kind.as_str(),
        subject.name,
        old,
        spec_digest(subject.spec()),
        subject.is_leaving(),
        format!("{:?}", subject.stamp_state),
        subject.own,
        subject.admits,
        subject.spec_is_untouched(),
        proof,
        requester.user,
        requester.uid,
        requester.groups,
        requester.extra,
    ]);
    Digest::of(named.to_string().as_bytes())
}
