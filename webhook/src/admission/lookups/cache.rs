//! Short-lived caches of reviews. One cache passes verdicts from the mutating call to the
//! validating call of the same request. The other cache contains metadata and signatures of images.
//! Each later request gets a new review. `bundle_trust::proof` caches the results of signature
//! checks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::diagnostic::{Finding, FindingLocation};
use bundle_core::json;
use bundle_core::reference::Digest;
use bundle_core::review::source::PullCredentials;
use bundle_core::review::{Image, Requester, Subject, Verdict, spec_digest};
use bundle_oci::registry::ImageMetadata;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use serde_json::json;

use crate::budget::CACHE_ENTRY;

/// Time for which a verdict is cached. The validating call usually follows the mutating call within
/// milliseconds.
const VERDICT_TTL: Duration = Duration::from_secs(5);
/// Maximum size of a cached verdict, in bytes. A larger verdict is not cached, so the validating
/// call computes it again.
const VERDICT_BYTES: usize = 8 << 10;
/// Maximum size of all cached verdicts, in bytes.
const MAX_VERDICT_BYTES: usize = 1 << 20;
/// Time for which the metadata of an image is cached. Signatures that are added to the image later
/// are missing until the cached metadata expires. The pod reads and verifies the signatures again
/// before an installation.
const IMAGE_TTL: Duration = Duration::from_secs(60);
/// Maximum size of the cached metadata and signatures of one image, in bytes. Larger metadata is
/// not cached, and is read again for each review. Metadata of ordinary images has a few KiB.
const IMAGE_BYTES: usize = 256 << 10;
/// Maximum size of the cached metadata and signatures of all images, in bytes.
const MAX_IMAGE_BYTES: usize = 2 << 20;
/// Maximum memory of both caches, in bytes.
pub(super) const MAX_BYTES: usize = MAX_VERDICT_BYTES + MAX_IMAGE_BYTES;
/// Memory that is counted for each cached text in addition to its length, in bytes.
const TEXT_OVERHEAD: usize = 256;

/// The cache of verdicts and the cache of images. Clones share both caches.
#[derive(Clone)]
pub(in crate::admission) struct ReviewCache {
    verdicts: Cache<Digest, Verdict>,
    images: Cache<ImageKey, Arc<ImageMetadata>>,
}

/// Key of cached metadata of an image: a SHA-256 hash of reference by digest, requester, client
/// address, class, pull credentials, and generation of the policies. Different requesters never
/// share a read. Otherwise the memory limit of one requester could make the read of another
/// requester fail. Different addresses never share a read either, because the client sends the name
/// of the requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::admission) struct ImageKey([u8; 32]);

impl ImageKey {
    /// Returns the key of an image that is referenced by digest. Returns `None` for a reference
    /// with only a tag, because a tag can move to another image.
    pub(in crate::admission) fn of(
        image: &Image,
        (requester, client): (&str, Option<IpAddr>),
        policies: u64,
    ) -> Option<Self> {
        let pinned = image.reference.pinned()?;
        let credentials = match &image.credentials {
            PullCredentials::Secret(name) => ["secret", name.as_str()],
            PullCredentials::Class(name) => ["class", name.as_str()],
        };
        let (reference, class) = (pinned.without_tag(), image.class.as_str());
        let inputs = json!([reference, requester, client, class, credentials, policies]);
        Some(Self(json::sha256(&inputs)))
    }
}

/// A result that is not cached.
#[derive(Debug, Clone)]
enum UncachedResult {
    /// The metadata was read, but it is too large for the cache, or its signatures could not be
    /// read.
    Image(Arc<ImageMetadata>),
    /// The lookup failed with this finding.
    Failed(Finding),
}

impl Default for ReviewCache {
    fn default() -> Self {
        Self {
            verdicts: Cache::builder()
                .max_capacity(MAX_VERDICT_BYTES as u64)
                .weigher(|_, verdict| u32::try_from(verdict_weight(verdict)).unwrap_or(u32::MAX))
                // LRU keeps the newest verdicts, because the validating call soon follows the
                // mutating call.
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(VERDICT_TTL)
                .build(),
            images: Cache::builder()
                .max_capacity(MAX_IMAGE_BYTES as u64)
                .weigher(|_, metadata: &Arc<ImageMetadata>| {
                    u32::try_from(weight(metadata)).unwrap_or(u32::MAX)
                })
                .time_to_live(IMAGE_TTL)
                .build(),
        }
    }
}

impl ReviewCache {
    /// Stores a verdict for the validating call of the same request. The API server does not send
    /// this call if the schema rejects the object.
    pub(in crate::admission) async fn insert(&self, key: Digest, verdict: Verdict) {
        if verdict_weight(&verdict) <= VERDICT_BYTES {
            self.verdicts.insert(key, verdict).await;
            // Evicts entries above the maximum size now. Otherwise the cache would evict them
            // later.
            self.verdicts.run_pending_tasks().await;
        }
    }

    /// Removes and returns a verdict. Each verdict is used once, so that a retried request gets a
    /// new verdict.
    pub(in crate::admission) async fn take(&self, key: &Digest) -> Option<Verdict> {
        self.verdicts.remove(key).await
    }

    /// Returns the metadata of the image with this key. If the metadata is not cached, `asking`
    /// reads it. Concurrent lookups of one key share a single read. Incomplete and large results
    /// are not cached.
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
                Ok(metadata) if is_cached(&metadata) => Ok(metadata),
                Ok(metadata) => Err(UncachedResult::Image(metadata)),
                Err(why) => Err(UncachedResult::Failed(why)),
            }
        };
        match self.images.try_get_with_by_ref(key, whole).await {
            Ok(metadata) => {
                // Evicts entries above the maximum size now. Otherwise the cache would evict them
                // later.
                self.images.run_pending_tasks().await;
                Ok(metadata)
            }
            Err(unkept) => match Arc::unwrap_or_clone(unkept) {
                UncachedResult::Image(metadata) => Ok(metadata),
                UncachedResult::Failed(why) => Err(why),
            },
        }
    }

    /// Removes the cached metadata of a rejected image, because a user may sign the image and try
    /// again.
    pub(in crate::admission) async fn forget(&self, key: &ImageKey) {
        self.images.invalidate(key).await;
    }
}

/// Returns true if the signatures were read and the metadata is small enough for the cache.
fn is_cached(metadata: &ImageMetadata) -> bool {
    metadata.signatures.is_ok() && weight(metadata) <= IMAGE_BYTES
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
    CACHE_ENTRY + TEXT_OVERHEAD + findings.sum::<usize>()
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
    CACHE_ENTRY + TEXT_OVERHEAD + texts(&metadata.annotations) + signatures.sum::<usize>()
}

/// Returns a digest over all inputs of a verdict except the state of the cluster, and over the
/// address of the client. The client sends the name of the requester, and can cause an unknown
/// verdict with a short deadline or with its limits. Reviews from other addresses must not use this
/// verdict.
pub(in crate::admission) fn key(
    subject: &Subject<'_>,
    requester: &Requester,
    client: Option<IpAddr>,
) -> Digest {
    let old = subject.old_spec().map(spec_digest);
    // The key contains a hash of the proof, because the proof can be as long as the request.
    let proof = subject.new["metadata"]["annotations"][ANNOTATION_PROOF].as_str();
    let proof = proof.map(|text| Digest::of(text.as_bytes()));
    let named = json!([
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
        client,
    ]);
    json::digest(&named)
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::{Findings, codes};
    use bundle_core::names::KubeName;
    use bundle_core::reference::Reference;

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
    async fn cached_verdicts_never_exceed_their_memory_and_the_newest_stays() {
        let cache = ReviewCache::default();
        let mut stored = 0;
        for number in 0..500_u32 {
            let finding = Finding::error(codes::review::BAD_FIELD, "x".repeat(4 << 10));
            let key = Digest::of(&number.to_le_bytes());
            let verdict = Verdict::Refuse(finding.into());
            cache.insert(key.clone(), verdict.clone()).await;
            stored = cache.verdicts.iter().count();
            let bytes = stored * verdict_weight(&verdict);
            assert!(bytes <= MAX_VERDICT_BYTES, "{stored}");
            assert!(cache.verdicts.contains_key(&key));
        }
        assert!(stored > 100, "{stored}");
    }

    #[tokio::test]
    async fn cached_images_never_exceed_their_memory_and_large_images_are_not_cached() {
        let cache = ReviewCache::default();
        let text = format!("registry.example.com/web@{}", Digest::of(b"web"));
        let pinned = text.parse::<Reference>().unwrap().pinned().unwrap();
        let image = |bytes: usize| ImageMetadata {
            pinned: pinned.clone(),
            annotations: [("text".to_owned(), "x".repeat(bytes))].into(),
            signatures: Ok(Vec::new()),
        };
        let mut stored = 0;
        for number in 0..100 {
            let (key, read) = (ImageKey([number; 32]), image(100 << 10));
            let found = cache.get_or_read(Some(&key), async { Ok(read) });
            found.await.unwrap();
            stored = cache.images.iter().count();
            assert!(stored * (100 << 10) <= MAX_IMAGE_BYTES, "{stored}");
        }
        assert!(stored > 10, "{stored}");
        let (key, read) = (ImageKey([200; 32]), image(IMAGE_BYTES));
        let found = cache.get_or_read(Some(&key), async { Ok(read) });
        found.await.unwrap();
        assert!(!cache.images.contains_key(&key));
    }

    #[test]
    fn key_of_an_image_differs_for_each_of_its_inputs() {
        let text = format!("registry.example.com/web@{}", Digest::of(b"web"));
        let image = |class: &str, credentials| Image {
            reference: text.parse().unwrap(),
            class: class.parse().unwrap(),
            credentials,
        };
        let name: KubeName = "plain".parse().unwrap();
        let of_class = PullCredentials::Class(name.clone());
        let of_secret = PullCredentials::Secret(name);
        let plain = image("plain", of_class.clone());
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        let mut keys = vec![
            ImageKey::of(&plain, ("ana", client), 1),
            ImageKey::of(&plain, ("ben", client), 1),
            ImageKey::of(&plain, ("ana", None), 1),
            ImageKey::of(&plain, ("ana", client), 2),
            ImageKey::of(&image("other", of_class), ("ana", client), 1),
            ImageKey::of(&image("plain", of_secret), ("ana", client), 1),
        ];
        keys.sort_unstable_by_key(|key| key.map(|key| key.0));
        keys.dedup();
        assert!(keys.len() == 6 && keys.iter().all(Option::is_some));
    }
}
