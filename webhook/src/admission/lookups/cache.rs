//! Short-lived caches of reviews: a verdict between the mutating and the validating call, and
//! images of admitted objects. Each later request is reviewed again. `bundle_trust::proof` caches
//! the results of signature checks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::{Finding, FindingLocation};
use bundle_core::names::KubeName;
use bundle_core::reference::Digest;
use bundle_core::review::source::PullCredentials;
use bundle_core::review::{Image, Requester, Subject, Verdict, spec_digest};
use bundle_oci::registry::ImageMetadata;
use moka::future::Cache;

/// Lifetime of a verdict. The validating call follows within milliseconds.
const VERDICT_TTL: Duration = Duration::from_secs(5);
/// Maximum size of a cached verdict, in bytes. A larger verdict is not cached and is computed
/// again.
const VERDICT_BYTES: usize = 8 << 10;
/// Maximum size of all cached verdicts, in bytes.
const MAX_VERDICT_BYTES: u64 = 2 << 20;
/// Lifetime of a cached image. It can lack signatures that were added later. The pod reads and
/// verifies the signatures again before an installation.
const IMAGE_TTL: Duration = Duration::from_secs(60);
/// Maximum size of cached images and signatures, in bytes.
const MAX_IMAGE_BYTES: u64 = 8 << 20;
/// Additional bytes that are counted for each text.
const TEXT_OVERHEAD: usize = 256;

/// The cache of verdicts and the cache of images. Clones share both caches.
#[derive(Clone)]
pub(in crate::admission) struct ReviewCache {
    verdicts: Cache<Digest, Verdict>,
    images: Cache<ImageKey, Arc<ImageMetadata>>,
}

/// Key of a cached image: its reference by digest, its requester, the class and its credentials, and
/// the generation of the policies. Different requesters never share a read, because a read can fail
/// if its requester has used all of their memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::admission) struct ImageKey {
    reference: String,
    requester: String,
    class: KubeName,
    credentials: PullCredentials,
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
            class: image.class.clone(),
            credentials: image.credentials.clone(),
            policies,
        })
    }
}

/// A result of a read that is not cached.
#[derive(Debug, Clone)]
enum UncachedResult {
    /// The image was read, and reading its signatures failed.
    WithoutSignatures(Arc<ImageMetadata>),
    /// The lookup failed with this finding.
    Failed(Finding),
}

impl Default for ReviewCache {
    fn default() -> Self {
        Self {
            verdicts: Cache::builder()
                .max_capacity(MAX_VERDICT_BYTES)
                .weigher(|_, verdict| u32::try_from(verdict_weight(verdict)).unwrap_or(u32::MAX))
                .time_to_live(VERDICT_TTL)
                .build(),
            images: Cache::builder()
                .max_capacity(MAX_IMAGE_BYTES)
                .weigher(|_, metadata: &Arc<ImageMetadata>| {
                    u32::try_from(weight(metadata)).unwrap_or(u32::MAX)
                })
                .time_to_live(IMAGE_TTL)
                .build(),
        }
    }
}

impl ReviewCache {
    /// Stores a verdict for the validating call of the same request. That call does not follow if
    /// the schema rejects the object.
    pub(in crate::admission) async fn insert(&self, key: Digest, verdict: Verdict) {
        // The cache evicts entries only some time after an insertion. Therefore a large verdict is
        // not inserted.
        if verdict_weight(&verdict) <= VERDICT_BYTES {
            self.verdicts.insert(key, verdict).await;
        }
    }

    /// Removes and returns a verdict. Each verdict is used once, so that a retried request gets a
    /// new verdict.
    pub(in crate::admission) async fn take(&self, key: &Digest) -> Option<Verdict> {
        self.verdicts.remove(key).await
    }

    /// Returns the image with this key. If the image is not cached, `asking` reads it. Concurrent
    /// lookups of one key share a single read. Incomplete results are not cached.
    pub(in crate::admission) async fn get_or_read(
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
                Ok(metadata) if metadata.signatures.is_ok() => Ok(metadata),
                Ok(metadata) => Err(UncachedResult::WithoutSignatures(metadata)),
                Err(why) => Err(UncachedResult::Failed(why)),
            }
        };
        match self.images.try_get_with_by_ref(key, whole).await {
            Ok(metadata) => Ok(metadata),
            Err(unkept) => match Arc::unwrap_or_clone(unkept) {
                UncachedResult::WithoutSignatures(metadata) => Ok(metadata),
                UncachedResult::Failed(why) => Err(why),
            },
        }
    }

    /// Removes the cached image, because a user may sign an image after its rejection.
    pub(in crate::admission) async fn forget(&self, key: &ImageKey) {
        self.images.invalidate(key).await;
    }
}

fn verdict_weight(verdict: &Verdict) -> usize {
    let findings = verdict.findings().iter().map(|finding| {
        let FindingLocation {
            file,
            field,
            subject,
            ..
        } = &finding.place;
        let texts = [file, field, subject, &finding.hint].into_iter().flatten();
        let texts = texts.chain([&finding.message]).map(String::len);
        size_of::<Finding>() + texts.sum::<usize>()
    });
    TEXT_OVERHEAD + findings.sum::<usize>()
}

fn weight(metadata: &ImageMetadata) -> usize {
    let texts = |map: &BTreeMap<String, String>| {
        let each = map.iter();
        each.map(|(name, text)| name.len() + text.len() + TEXT_OVERHEAD)
            .sum::<usize>()
    };
    let signatures = metadata.signatures.iter().flatten();
    let signatures = signatures.map(|signature| {
        signature.bytes.len()
            + signature.artifact_type.len()
            + texts(&signature.annotations)
            + TEXT_OVERHEAD
    });
    texts(&metadata.annotations) + signatures.sum::<usize>() + TEXT_OVERHEAD
}

/// Returns a digest over all inputs of a verdict except the state of the cluster.
pub(in crate::admission) fn key(subject: &Subject<'_>, requester: &Requester) -> Digest {
    let old = subject.old_spec().map(spec_digest);
    // The key contains a hash of the proof, because the proof can be as long as the request.
    let proof = subject.new["metadata"]["annotations"][ANNOTATION_PROOF].as_str();
    let proof = proof.map(|text| Digest::of(text.as_bytes()));
    let named = serde_json::json!([
        subject.kind.as_str(),
        subject.name,
        old,
        spec_digest(subject.spec()),
        subject.is_deleted_unconfirmed(),
        format!("{:?}", subject.stamp_state),
        subject.own,
        subject.admits,
        subject.spec_text_unchanged(),
        proof,
        requester.user,
        requester.uid,
        requester.groups,
        requester.extra,
    ]);
    Digest::of(named.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::{Findings, codes};

    use super::*;

    #[tokio::test]
    async fn verdicts_with_many_findings_are_not_cached() {
        let cache = ReviewCache::default();
        let verdict = |count: usize| {
            let finding = Finding::error(codes::review::BAD_FIELD, "x".repeat(1 << 10));
            Verdict::Refuse(vec![finding; count].into_iter().collect::<Findings>())
        };
        let keys = ["few", "many"].map(|text| Digest::of(text.as_bytes()));
        for (key, count) in keys.iter().zip([4, 100]) {
            cache.insert(key.clone(), verdict(count)).await;
        }
        assert!(cache.take(&keys[0]).await.is_some());
        assert!(cache.take(&keys[1]).await.is_none());
    }

    #[tokio::test]
    async fn cached_verdicts_have_bounded_memory() {
        let cache = ReviewCache::default();
        for number in 0..2_000_u32 {
            let finding = Finding::error(codes::review::BAD_FIELD, "x".repeat(4 << 10));
            let key = Digest::of(&number.to_le_bytes());
            cache.insert(key, Verdict::Refuse(finding.into())).await;
        }
        cache.verdicts.run_pending_tasks().await;
        assert!(cache.verdicts.weighted_size() <= MAX_VERDICT_BYTES);
        assert!(cache.verdicts.entry_count() > 100);
    }
}
