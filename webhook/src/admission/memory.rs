//! What reviews leave for each other, for moments only: a verdict on its way from the mutating to the validating call, and images that were let in.
//! Not here: verdicts on later requests; each is judged anew.

use std::time::Duration;

use bundle_core::reference::Digest;
use bundle_core::review::{Image, Subject, Verdict, spec_digest};
use bundle_oci::registry::Looked;
use moka::future::Cache;

use super::carried;
use super::review::UserInfo;

/// The validating call comes within milliseconds.
const ON_ITS_WAY: Duration = Duration::from_secs(5);
/// Signatures are only ever added, and are verified again before anything is installed.
const IMAGES_KNOWN: Duration = Duration::from_secs(60);

/// Two small memories; clones share them.
#[derive(Clone)]
pub(super) struct Memory {
    verdicts: Cache<Digest, Verdict>,
    images: Cache<ImageKey, Looked>,
}

/// An image by digest, as seen with a pull secret under a generation of policies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ImageKey {
    reference: String,
    pull_secret: Option<String>,
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

impl Default for Memory {
    fn default() -> Self {
        Self {
            verdicts: Cache::builder()
                .max_capacity(1024)
                .time_to_live(ON_ITS_WAY)
                .build(),
            images: Cache::builder()
                .max_capacity(256)
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

    pub(super) async fn image(&self, key: &ImageKey) -> Option<Looked> {
        self.images.get(key).await
    }

    pub(super) async fn remember(&self, key: ImageKey, looked: Looked) {
        self.images.insert(key, looked).await;
    }
}

/// Names everything that a verdict depends on beside the state of the cluster.
pub(super) fn key(subject: &Subject<'_>, user: &UserInfo) -> Digest {
    let old = subject.old_spec().map(spec_digest);
    let named = serde_json::json!([
        subject.kind.as_str(),
        subject.name,
        old,
        spec_digest(subject.spec()),
        subject.is_leaving(),
        format!("{:?}", subject.standing),
        subject.own,
        carried::text(subject.new),
        user.username,
        user.uid,
        user.groups,
        user.extra,
    ]);
    Digest::of(named.to_string().as_bytes())
}
