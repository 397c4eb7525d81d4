//! Shipments to a registry: what is missing, manifests after all that they name, and the tag last, so that a name never points at half of it.
//! Not here: single requests (registry).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::{Digest, PinnedReference, Reference};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Node, Role, Shipment};
use crate::progress::Progress;
use crate::registry::{Client, Reason, RegistryError, Repository, TagPolicy, Upload};

/// Blobs under way at once.
const BLOBS: usize = 4;
/// Small requests under way at once.
const ASKED: usize = 8;

/// What was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The image under its new name.
    pub pinned: PinnedReference,
    /// Manifests that were written.
    pub manifests: usize,
    /// Blobs that were sent.
    pub sent: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Blobs that the registry took from another repository of its own.
    pub mounted: usize,
    /// Blobs that were there.
    pub present: usize,
    /// Whether the tag means something else than before.
    pub tagged: bool,
}

impl Sent {
    /// Whether nothing changed.
    pub fn is_nothing(&self) -> bool {
        self.manifests == 0 && self.sent == 0 && !self.tagged
    }
}

/// Which repositories of which registries are known to have which blob: from there they are mounted instead of sent.
#[derive(Debug, Default)]
pub struct Mounts(Mutex<BTreeMap<(String, Digest), Repository>>);

impl Mounts {
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

/// Sends a shipment to where `to` says: under its tag, and under its digest if it names one (which has to be that of the image).
pub async fn send(
    client: &Client,
    to: &Reference,
    shipment: &Shipment,
    tags: TagPolicy,
    mounts: &Mounts,
    progress: &Arc<dyn Progress>,
) -> Result<Sent, Finding> {
    let client = &client.with_progress(Arc::clone(progress));
    let sender = Sender {
        client,
        progress,
        repository: to.into(),
        to,
        shipment,
        mounts,
    };
    sender.run(tags).await
}

struct Sender<'a> {
    client: &'a Client,
    progress: &'a Arc<dyn Progress>,
    repository: Repository,
    to: &'a Reference,
    shipment: &'a Shipment,
    mounts: &'a Mounts,
}

impl Sender<'_> {
    async fn run(&self, tags: TagPolicy) -> Result<Sent, Finding> {
        let root = &self.shipment.image.root;
        if let Some(named) = self.to.digest().filter(|named| **named != root.digest) {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("the content has another digest, {}", root.digest),
            )
            .about(self.to.to_string())
            .hint(format!(
                "leave the digest out, or copy the content that is {named}"
            )));
        }
        let named = self.names(tags).await?;
        let there = self.there().await?;
        let mut sent = Sent {
            pinned: self.to.pin(root.digest.clone()),
            manifests: 0,
            sent: 0,
            bytes: 0,
            mounted: 0,
            present: 0,
            tagged: false,
        };
        let nodes = &self.shipment.graph.nodes;
        let new: Vec<&Node> = nodes
            .iter()
            .filter(|node| !there.contains(&node.raw.digest))
            .collect();
        self.blobs(&new, &mut sent).await?;
        // Single images need nothing of each other; everything else needs what stands before it.
        let (images, others): (Vec<&Node>, Vec<&Node>) = new
            .into_iter()
            .partition(|node| node.role == Role::Content && !node.blobs.is_empty());
        stream::iter(images.iter().map(|node| self.put(node)))
            .buffer_unordered(BLOBS)
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

    /// The tags that have to be written, the image's last. A tag that names other content is a finding unless it may move.
    async fn names(&self, tags: TagPolicy) -> Result<Vec<(String, &Node)>, Finding> {
        let root = &self.shipment.image.root.digest;
        let mut named = Vec::new();
        for node in &self.shipment.graph.nodes {
            if let Role::Tagged(tag) = &node.role {
                named.push((tag.clone(), node));
            }
        }
        let own = self
            .shipment
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
            .buffered(ASKED)
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
                        reason: Reason::TagTaken { found },
                    }
                    .finding());
                }
                _ => missing.push((tag, node)),
            }
        }
        Ok(missing)
    }

    /// The manifests that the repository has. A referrer counts only where it is listed for its subject, so that one which was cut off before that
    /// is listed now.
    async fn there(&self) -> Result<BTreeSet<Digest>, Finding> {
        let nodes = &self.shipment.graph.nodes;
        let subjects: BTreeSet<&Digest> = nodes
            .iter()
            .filter_map(|node| match &node.role {
                Role::Referrer(subject) => Some(subject),
                _ => None,
            })
            .collect();
        let listed = stream::iter(subjects)
            .map(|subject| async move {
                let listed = self.client.referrers(&self.repository, subject).await;
                listed.map(|listed| listed.into_iter().map(|one| one.digest).collect::<Vec<_>>())
            })
            .buffer_unordered(ASKED)
            .try_concat();
        let asked = nodes
            .iter()
            .filter(|node| !matches!(node.role, Role::Referrer(_)));
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
            .buffer_unordered(ASKED)
            .try_concat();
        let (listed, found) =
            futures::try_join!(listed, found).map_err(|error| self.explain(&error))?;
        Ok(listed.into_iter().chain(found).collect())
    }

    async fn blobs(&self, new: &[&Node], sent: &mut Sent) -> Result<(), Finding> {
        let wanted: BTreeSet<&Digest> = new.iter().flat_map(|node| &node.blobs).collect();
        let blobs: Vec<_> = wanted
            .into_iter()
            .filter_map(|digest| self.shipment.graph.blobs.get(digest))
            .collect();
        self.progress
            .expect(blobs.iter().map(|blob| blob.size).sum());
        let mut uploads = stream::iter(blobs)
            .map(|descriptor| async move {
                let blob = self.shipment.image.source.blob(descriptor)?;
                let near = self
                    .shipment
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
            .buffer_unordered(BLOBS);
        while let Some((upload, size)) = uploads.try_next().await? {
            match upload {
                Upload::Present => sent.present += 1,
                Upload::Mounted => sent.mounted += 1,
                Upload::Sent => {
                    sent.sent += 1;
                    sent.bytes += size;
                }
            }
        }
        Ok(())
    }

    async fn put(&self, node: &Node) -> Result<(), Finding> {
        self.client
            .put_raw_manifest(&self.repository, node.raw.digest.as_str(), &node.raw)
            .await
            .map(drop)
            .map_err(|error| self.explain(&error))
    }

    /// What a person is told. That registries take no index without its images is worth more than their own words.
    fn explain(&self, error: &RegistryError) -> Finding {
        let missing = &self.shipment.graph.missing;
        let refused = matches!(error.reason, Reason::Refused { .. } | Reason::NotFound);
        if missing.is_empty() || !refused {
            return error.finding();
        }
        let platforms: Vec<_> = missing
            .iter()
            .filter_map(|one| one.descriptor.platform.as_ref().map(ToString::to_string))
            .collect();
        Finding::error(
            codes::registry::SPARSE_INDEX,
            format!("{error}: {} of its images are left out ({})", missing.len(), platforms.join(", ")),
        )
        .hint("copy or save it for all platforms (without --platform), or let the registry take such indexes (CNCF distribution: validation.manifests.indexes.platforms: none)")
    }
}
