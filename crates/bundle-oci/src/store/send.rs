//! Copies an image to a registry. The missing blobs are sent first. Each manifest is sent after the
//! content that the manifest refers to. The tag is sent last, so that a tag never refers to an
//! incomplete image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::{Digest, PinnedReference, Reference};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{CopyPlan, ManifestNode, ManifestRole, SkippedManifest};
use crate::progress::Progress;
use crate::registry::{
    Client, RegistryError, RegistryErrorReason, Repository, TagPolicy, UploadResult,
};

/// Maximum number of concurrent blob transfers.
const MAX_BLOBS: usize = 4;
/// Maximum number of concurrent small requests.
const MAX_REQUESTS: usize = 8;

/// Result of a copy to a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyResult {
    /// New reference of the image, with its digest.
    pub pinned: PinnedReference,
    /// Number of manifests that were written.
    pub manifests: usize,
    /// Number of blobs that were sent.
    pub sent: usize,
    /// Bytes of the blobs that were sent.
    pub bytes: u64,
    /// Number of blobs that were mounted from another repository of the registry.
    pub mounted: usize,
    /// Number of blobs that the repository already had.
    pub present: usize,
    /// `true` if the tag was created or moved.
    pub tagged: bool,
}

impl CopyResult {
    /// Returns `true` if nothing changed.
    pub fn is_unchanged(&self) -> bool {
        self.manifests == 0 && self.sent == 0 && !self.tagged
    }
}

/// Repositories that have a blob, by registry and digest. If a blob is in one of these
/// repositories, it is mounted instead of sent.
#[derive(Debug, Default)]
pub struct MountSources(Mutex<BTreeMap<(String, Digest), Repository>>);

impl MountSources {
    fn of(&self, registry: &str, digest: &Digest) -> Option<Repository> {
        let key = (registry.to_owned(), digest.clone());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key).cloned()
    }

    fn remember(&self, repository: &Repository, digest: &Digest) {
        let key = (repository.registry().to_owned(), digest.clone());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(key).or_insert_with(|| repository.clone());
    }
}

/// Copies an image to `to`, under the tag of `to`. If `to` has a digest, the image must have this
/// digest, and is also copied under the digest.
pub async fn send(
    client: &Client,
    to: &Reference,
    plan: &CopyPlan,
    tags: TagPolicy,
    mounts: &MountSources,
    progress: &Arc<dyn Progress>,
) -> Result<CopyResult, Finding> {
    let client = &client.with_progress(Arc::clone(progress));
    let sender = GraphSender {
        client,
        progress,
        repository: to.into(),
        to,
        plan,
        mounts,
    };
    sender.run(tags).await
}

struct GraphSender<'a> {
    client: &'a Client,
    progress: &'a Arc<dyn Progress>,
    repository: Repository,
    to: &'a Reference,
    plan: &'a CopyPlan,
    mounts: &'a MountSources,
}

impl GraphSender<'_> {
    async fn run(&self, tags: TagPolicy) -> Result<CopyResult, Finding> {
        let root = &self.plan.image.root;
        if let Some(named) = self.to.digest().filter(|named| **named != root.digest) {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("the content has another digest, {}", root.digest),
            )
            .about(self.to.to_string())
            .hint(format!(
                "omit the digest, or copy the content with digest {named}"
            )));
        }
        let named = self.tags_to_write(tags).await?;
        let there = self.existing().await?;
        let mut sent = CopyResult {
            pinned: self.to.pin(root.digest.clone()),
            manifests: 0,
            sent: 0,
            bytes: 0,
            mounted: 0,
            present: 0,
            tagged: false,
        };
        let nodes = &self.plan.graph.nodes;
        let new: Vec<&ManifestNode> = nodes
            .iter()
            .filter(|node| !there.contains(&node.raw.digest))
            .collect();
        self.blobs(&new, &mut sent).await?;
        // Images without children are independent of each other. All other nodes are sent after the
        // nodes that precede them.
        let (images, others): (Vec<&ManifestNode>, Vec<&ManifestNode>) = new
            .into_iter()
            .partition(|node| node.role == ManifestRole::Content && !node.blobs.is_empty());
        stream::iter(images.iter().map(|node| self.put(node)))
            .buffer_unordered(MAX_BLOBS)
            .try_collect::<()>()
            .await?;
        for node in &others {
            self.put(node).await?;
        }
        sent.manifests = images.len() + others.len();
        for (tag, node) in named {
            self.client
                .put_raw_manifest(&self.repository, &tag, &node.raw)
                .await
                .map_err(|error| self.explain(&error))?;
            sent.tagged = true;
        }
        Ok(sent)
    }

    /// Returns the tags to write, with the tag of the image last. Returns an error for a tag with
    /// other content, unless `tags` is [`TagPolicy::Move`].
    async fn tags_to_write(
        &self,
        tags: TagPolicy,
    ) -> Result<Vec<(String, &ManifestNode)>, Finding> {
        let root = &self.plan.image.root.digest;
        let mut named = Vec::new();
        for node in &self.plan.graph.nodes {
            if let ManifestRole::Tagged(tag) = &node.role {
                named.push((tag.clone(), node));
            }
        }
        let own = self
            .plan
            .graph
            .nodes
            .iter()
            .find(|node| node.raw.digest == *root);
        if let (Some(tag), Some(node)) = (self.to.tag(), own) {
            named.push((tag.to_owned(), node));
        }
        let found: Vec<_> = stream::iter(named)
            .map(|(tag, node)| async move {
                let found = self.client.manifest_exists(&self.repository, &tag).await;
                found.map(|found| (tag, node, found))
            })
            .buffered(MAX_REQUESTS)
            .try_collect()
            .await
            .map_err(|error| self.explain(&error))?;
        let mut missing = Vec::new();
        for (tag, node, found) in found {
            match found {
                Some(found) if found == node.raw.digest => {}
                Some(found) if tags == TagPolicy::Keep => {
                    return Err(RegistryError {
                        doing: "push",
                        subject: format!("{}:{tag}", self.repository),
                        reason: RegistryErrorReason::TagTaken { found },
                    }
                    .finding());
                }
                _ => missing.push((tag, node)),
            }
        }
        Ok(missing)
    }

    /// Returns the digests of the manifests that the repository already has. A referrer counts only
    /// if the list of its subject contains it, so that an interrupted copy is completed.
    async fn existing(&self) -> Result<BTreeSet<Digest>, Finding> {
        let nodes = &self.plan.graph.nodes;
        let subjects: BTreeSet<&Digest> = nodes
            .iter()
            .filter_map(|node| match &node.role {
                ManifestRole::Referrer(subject) => Some(subject),
                _ => None,
            })
            .collect();
        let listed = stream::iter(subjects)
            .map(|subject| async move {
                let listed = self.client.referrers(&self.repository, subject).await;
                listed.map(|listed| listed.into_iter().map(|one| one.digest).collect::<Vec<_>>())
            })
            .buffer_unordered(MAX_REQUESTS)
            .try_concat();
        let asked = nodes
            .iter()
            .filter(|node| !matches!(node.role, ManifestRole::Referrer(_)));
        let found = stream::iter(asked)
            .map(|node| async move {
                let digest = &node.raw.digest;
                let found = self
                    .client
                    .manifest_exists(&self.repository, digest.as_str())
                    .await;
                found.map(|found| {
                    found
                        .map(|_| digest.clone())
                        .into_iter()
                        .collect::<Vec<_>>()
                })
            })
            .buffer_unordered(MAX_REQUESTS)
            .try_concat();
        let (listed, found) =
            futures::try_join!(listed, found).map_err(|error| self.explain(&error))?;
        Ok(listed.into_iter().chain(found).collect())
    }

    async fn blobs(&self, new: &[&ManifestNode], sent: &mut CopyResult) -> Result<(), Finding> {
        let wanted: BTreeSet<&Digest> = new.iter().flat_map(|node| &node.blobs).collect();
        let blobs: Vec<_> = wanted
            .into_iter()
            .filter_map(|digest| self.plan.graph.blobs.get(digest))
            .collect();
        self.progress
            .expect(blobs.iter().map(|blob| blob.size).sum());
        let mut uploads = stream::iter(blobs)
            .map(|descriptor| async move {
                let blob = self.plan.image.source.blob(descriptor)?;
                let near = self
                    .plan
                    .image
                    .source
                    .repository()
                    .filter(|from| from.registry() == self.repository.registry())
                    .cloned()
                    .or_else(|| {
                        self.mounts
                            .of(self.repository.registry(), &descriptor.digest)
                    });
                let upload = self
                    .client
                    .upload(&self.repository, &blob, near.as_ref())
                    .await
                    .map_err(|error| self.explain(&error))?;
                self.mounts.remember(&self.repository, &descriptor.digest);
                Ok::<_, Finding>((upload, descriptor.size))
            })
            .buffer_unordered(MAX_BLOBS);
        while let Some((upload, size)) = uploads.try_next().await? {
            match upload {
                UploadResult::Present => sent.present += 1,
                UploadResult::Mounted => sent.mounted += 1,
                UploadResult::Sent => {
                    sent.sent += 1;
                    sent.bytes += size;
                }
            }
        }
        Ok(())
    }

    async fn put(&self, node: &ManifestNode) -> Result<(), Finding> {
        self.client
            .put_raw_manifest(&self.repository, node.raw.digest.as_str(), &node.raw)
            .await
            .map(drop)
            .map_err(|error| self.explain(&error))
    }

    /// Returns the diagnostic of an error. If the registry rejected an index because some of its
    /// images were not copied, the diagnostic has a hint about this cause.
    fn explain(&self, error: &RegistryError) -> Finding {
        let missing = &self.plan.graph.missing;
        let refused = matches!(
            error.reason,
            RegistryErrorReason::Refused { .. } | RegistryErrorReason::NotFound
        );
        if missing.is_empty() || !refused {
            return error.finding();
        }
        sparse_index(error, missing)
    }
}

/// Returns the finding about an index that a registry rejects without the manifests in `missing`.
pub(super) fn sparse_index(error: &RegistryError, missing: &[SkippedManifest]) -> Finding {
    let platforms: Vec<_> = missing
        .iter()
        .filter_map(|one| one.descriptor.platform.as_ref().map(ToString::to_string))
        .collect();
    Finding::error(
        codes::registry::SPARSE_INDEX,
        format!("{error}: the index lists images that were not copied: {} ({})", missing.len(), platforms.join(", ")),
    )
    .hint("copy or save all platforms (without --platform), or let the registry accept incomplete indexes (CNCF distribution: validation.manifests.indexes.platforms: none)")
}
