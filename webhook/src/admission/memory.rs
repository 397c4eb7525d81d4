//! What reviews leave for each other, for moments only: a verdict on its way from the mutating to the validating call, and images that were let in.
//! Not here: verdicts on later requests; each is judged anew, from examinations that are remembered by what they depend on (bundle_trust::proof).

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

/// The validating call comes within milliseconds.
const ON_ITS_WAY: Duration = Duration::from_secs(5);
/// Signatures are only ever added, and are verified again before anything is installed.
const IMAGES_KNOWN: Duration = Duration::from_secs(60);
/// Most bytes of images and their signatures that are kept.
const IMAGE_BYTES: u64 = 8 << 20;
/// What is counted for each text of them.
const EACH: usize = 256;

/// Two small memories; clones share them.
#[derive(Clone)]
pub(super) struct Memory {
    verdicts: Cache<Digest, Verdict>,
    images: Cache<ImageKey, Arc<ImageMetadata>>,
}

/// An image by digest, as seen with a pull secret under a generation of policies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ImageKey {
    reference: String,
    pull_secret: Option<KubeName>,
    policies: u64,
}

impl ImageKey {
    /// A tag may move, so only what is named by digest is remembered.
    pub(super) fn of(image: &Image, policies: u64) -> Option<Self> {
        let pinned = image.reference.pinned()?;
        Some(Self {
            reference: pinned.without_tag(),
            pull_secret: image.pull_secret.clone(),
            policies,
        })
    }
}

/// What was seen, and is not kept.
#[derive(Debug, Clone)]
enum Unkept {
    /// The image, but not its signatures.
    Half(Arc<ImageMetadata>),
    /// Nothing.
    Nothing(Finding),
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            verdicts: Cache::builder()
                .max_capacity(1024)
                .time_to_live(ON_ITS_WAY)
                .build(),
            images: Cache::builder()
                .max_capacity(IMAGE_BYTES)
                .weigher(|_, looked: &Arc<ImageMetadata>| {
                    u32::try_from(weight(looked)).unwrap_or(u32::MAX)
                })
                .time_to_live(IMAGES_KNOWN)
                .build(),
        }
    }
}

impl Memory {
    /// Leaves a verdict for the validating call of the same request.
    pub(super) async fn leave(&self, key: Digest, verdict: Verdict) {
        self.verdicts.insert(key, verdict).await;
    }

    /// Takes it: it serves once, so nobody who tries again gets an old answer.
    pub(super) async fn take(&self, key: &Digest) -> Option<Verdict> {
        self.verdicts.remove(key).await
    }

    /// The image of that key, which is looked at by `asking` if it is not known. Those who want the same at the same time share one look. What could
    /// not be seen in full is not kept.
    pub(super) async fn look(
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
                Ok(looked) => Err(Unkept::Half(looked)),
                Err(why) => Err(Unkept::Nothing(why)),
            }
        };
        match self.images.try_get_with_by_ref(key, whole).await {
            Ok(looked) => Ok(looked),
            Err(unkept) => match Arc::unwrap_or_clone(unkept) {
                Unkept::Half(looked) => Ok(looked),
                Unkept::Nothing(why) => Err(why),
            },
        }
    }

    /// What was not let in is looked at again: it may be signed a moment later.
    pub(super) async fn forget(&self, key: &ImageKey) {
        self.images.invalidate(key).await;
    }
}

fn weight(looked: &ImageMetadata) -> usize {
    let texts = |map: &BTreeMap<String, String>| {
        let each = map.iter();
        each.map(|(name, text)| name.len() + text.len() + EACH)
            .sum::<usize>()
    };
    let signatures = looked.signatures.iter().flatten();
    let signatures = signatures.map(|signature| {
        signature.bytes.len() + signature.artifact_type.len() + texts(&signature.annotations) + EACH
    });
    texts(&looked.annotations) + signatures.sum::<usize>() + EACH
}

/// Names everything that a verdict depends on beside the state of the cluster.
pub(super) fn key(subject: &Subject<'_>, requester: &Requester) -> Digest {
    let old = subject.old_spec().map(spec_digest);
    // It can be as long as the request.
    let proof = subject.new["metadata"]["annotations"][ANNOTATION_PROOF].as_str();
    let proof = proof.map(|text| Digest::of(text.as_bytes()));
    let named = serde_json::json!([
        subject.kind.as_str(),
        subject.name,
        old,
        spec_digest(subject.spec()),
        subject.is_leaving(),
        format!("{:?}", subject.standing),
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
