//! Graph of an image: the manifests and blobs below the image, and its referrers. Depth, number and
//! size are limited.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::ImageSource;
use crate::attached::{LEGACY, legacy_tag};
use crate::limits::format_size;
use crate::manifest::{Descriptor, ParsedManifest, Platform, RawManifest};
use crate::media;

/// Maximum number of concurrent requests.
const AT_ONCE: usize = 8;
/// Annotation with which image builders mark an entry of an index as an attestation. The value is
/// the digest of the attested image.
const ATTESTED_DIGEST: &str = "vnd.docker.reference.digest";

/// Limits of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphLimits {
    /// Maximum depth of nested indexes.
    pub depth: usize,
    /// Maximum depth of referrers: a signature on an attestation on an image has depth two.
    pub referrers: usize,
    /// Maximum number of manifests and indexes.
    pub manifests: usize,
    /// Maximum total size of manifests and indexes, in bytes. All manifests and indexes are kept in
    /// memory.
    pub bytes: u64,
    /// Maximum number of blobs.
    pub blobs: usize,
}

impl Default for GraphLimits {
    fn default() -> Self {
        Self {
            depth: 3,
            referrers: 3,
            manifests: 4096,
            bytes: 16 << 20,
            blobs: 65_536,
        }
    }
}

/// Selection of the content to copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// `true` if signatures, attestations and other referrers are not copied.
    pub without_referrers: bool,
    /// Platforms to copy. An empty list means all platforms.
    pub platforms: Vec<Platform>,
    /// Referrers to copy, if a list of images names them. With `None`, all referrers in the source
    /// are copied.
    pub attached: Option<Vec<(ManifestRole, Descriptor)>>,
    /// Limits.
    pub bounds: GraphLimits,
}

/// The manifests and blobs of an image.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Manifests and indexes. An index or referrer comes after the manifests to which it refers.
    pub nodes: Vec<ManifestNode>,
    /// Configurations, layers and other blobs, by digest.
    pub blobs: BTreeMap<Digest, Descriptor>,
    /// Entries of indexes that are not copied.
    pub missing: Vec<SkippedManifest>,
}

/// A manifest or index of a graph.
#[derive(Debug, Clone)]
pub struct ManifestNode {
    /// Document.
    pub raw: RawManifest,
    /// Role in the graph.
    pub role: ManifestRole,
    /// Blobs that the manifest refers to.
    pub blobs: Vec<Digest>,
    /// Descriptor of the manifest, in the form of an entry in a list of referrers.
    pub list_descriptor: Descriptor,
}

/// Role of a manifest in a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestRole {
    /// The image, or a part of the image.
    Content,
    /// A referrer of this digest.
    Referrer(Digest),
    /// A manifest under a tag such as `sha256-….sig`. It belongs to the digest in the tag.
    Tagged(String),
}

/// An entry of an index that is not copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedManifest {
    /// Descriptor of the missing manifest.
    pub descriptor: Descriptor,
    /// `true` if the selection excludes the manifest. `false` if the source does not have the
    /// manifest.
    pub is_excluded_by_selection: bool,
}

impl Graph {
    /// Returns the total size, in bytes.
    pub fn size(&self) -> u64 {
        let blobs: u64 = self.blobs.values().map(|blob| blob.size).sum();
        let documents = self.nodes.iter().map(|node| node.raw.bytes.len() as u64);
        blobs + documents.sum::<u64>()
    }

    /// Returns the number of referrers and of manifests under tags such as `sha256-….sig`.
    pub fn attached(&self) -> usize {
        let attached = self
            .nodes
            .iter()
            .filter(|node| node.role != ManifestRole::Content);
        attached.count()
    }
}

/// Builds the graph of `root`.
pub(super) async fn build_graph(
    source: &ImageSource,
    root: &RawManifest,
    selection: &CopyOptions,
) -> Result<Graph, Finding> {
    let mut walk = GraphBuilder {
        source,
        selection,
        seen: BTreeSet::new(),
        bytes: 0,
        graph: Graph::default(),
    };
    let subjects = walk.add_tree(root.clone(), &ManifestRole::Content).await?;
    match &selection.attached {
        _ if selection.without_referrers => {}
        Some(listed) => walk.add_recorded_referrers(listed).await?,
        None => walk.add_referrers(subjects).await?,
    }
    Ok(walk.graph)
}

struct GraphBuilder<'a> {
    source: &'a ImageSource,
    selection: &'a CopyOptions,
    /// Digests that were already added, because several manifests may refer to the same content.
    /// Cycles are impossible: a document cannot contain its own digest.
    seen: BTreeSet<Digest>,
    bytes: u64,
    graph: Graph,
}

impl GraphBuilder<'_> {
    /// Adds `root` and all manifests and blobs below it, children first. Returns the digests of the
    /// manifests.
    async fn add_tree(
        &mut self,
        root: RawManifest,
        role: &ManifestRole,
    ) -> Result<Vec<Digest>, Finding> {
        if self.seen.contains(&root.digest) {
            return Ok(Vec::new());
        }
        let mut read: BTreeMap<Digest, (RawManifest, ParsedManifest)> = BTreeMap::new();
        let top = root.digest.clone();
        let mut level = vec![root];
        for depth in 0.. {
            let mut next = Vec::new();
            for raw in level {
                let parsed = self.take(&raw)?;
                if let ParsedManifest::Index(index) = &parsed {
                    next.extend(self.select_manifests(&raw.digest, &index.manifests)?);
                }
                read.insert(raw.digest.clone(), (raw, parsed));
            }
            next.retain(|one| !self.seen.contains(&one.digest));
            next.sort_by(|a, b| a.digest.cmp(&b.digest));
            next.dedup_by(|a, b| a.digest == b.digest);
            if next.is_empty() {
                break;
            }
            if depth == self.selection.bounds.depth {
                return Err(self.too_much(&format!(
                    "more than {depth} levels of indexes above an image"
                )));
            }
            level = self.fetch(next).await?;
        }
        let mut order = Vec::new();
        self.add_to_graph(&top, &mut read, role, &mut order)?;
        Ok(order)
    }

    /// Moves the document with this digest and the documents below it from `read` to the graph,
    /// children first.
    fn add_to_graph(
        &mut self,
        digest: &Digest,
        read: &mut BTreeMap<Digest, (RawManifest, ParsedManifest)>,
        role: &ManifestRole,
        order: &mut Vec<Digest>,
    ) -> Result<(), Finding> {
        let Some((raw, parsed)) = read.remove(digest) else {
            return Ok(());
        };
        let mut blobs = Vec::new();
        match &parsed {
            ParsedManifest::Index(index) => {
                for child in &index.manifests {
                    // If a referrer is an index, its manifests have the role of content.
                    self.add_to_graph(&child.digest, read, &ManifestRole::Content, order)?;
                }
            }
            ParsedManifest::Image(manifest) => {
                for blob in std::iter::once(&manifest.config).chain(&manifest.layers) {
                    if media::is_foreign(&blob.media_type) {
                        continue;
                    }
                    self.blob(blob)?;
                    blobs.push(blob.digest.clone());
                }
            }
        }
        order.push(digest.clone());
        let described = Descriptor {
            artifact_type: parsed.artifact_type().map(str::to_owned),
            annotations: parsed.annotations().clone(),
            ..raw.descriptor()
        };
        self.graph.nodes.push(ManifestNode {
            raw,
            role: role.clone(),
            blobs,
            list_descriptor: described,
        });
        Ok(())
    }

    /// Adds the referrers of `subjects`, and their referrers.
    async fn add_referrers(&mut self, mut subjects: Vec<Digest>) -> Result<(), Finding> {
        for depth in 0..=self.selection.bounds.referrers {
            let source = self.source;
            let found: Vec<(Digest, Vec<(ManifestRole, RawManifest)>)> = stream::iter(subjects)
                .map(|subject| async move {
                    let attachments = attachments_of(source, &subject, depth == 0).await?;
                    Ok::<_, Finding>((subject, attachments))
                })
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            let mut next = Vec::new();
            for (_, attachments) in found {
                for (role, raw) in attachments {
                    next.extend(self.add_tree(raw, &role).await?);
                }
            }
            if next.is_empty() {
                return Ok(());
            }
            if depth == self.selection.bounds.referrers {
                return Err(self.too_much(&format!(
                    "more than {depth} referrers that refer to each other"
                )));
            }
            subjects = next;
        }
        Ok(())
    }

    /// Adds the referrers that a list of images names. They are read by their digests.
    async fn add_recorded_referrers(
        &mut self,
        listed: &[(ManifestRole, Descriptor)],
    ) -> Result<(), Finding> {
        let wanted = listed.iter().map(|(_, one)| one.clone()).collect();
        let found = self.fetch(wanted).await?;
        for ((role, _), raw) in listed.iter().zip(found) {
            self.add_tree(raw, role).await?;
        }
        Ok(())
    }

    async fn fetch(&self, wanted: Vec<Descriptor>) -> Result<Vec<RawManifest>, Finding> {
        let source = self.source;
        let found: Vec<_> = stream::iter(wanted)
            .map(|one| async move {
                let raw = source.manifest(&one).await?;
                Ok::<_, Finding>((one, raw))
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        found
            .into_iter()
            .map(|(named, raw)| match raw {
                Some(raw) if raw.bytes.len() as u64 == named.size => Ok(raw),
                Some(raw) => Err(crate::blob::changed_content(
                    &named.digest,
                    &format!("{} bytes instead of {}", raw.bytes.len(), named.size),
                )),
                // `select_manifests` has already checked that a layout contains the manifest.
                // Therefore the source is a registry, and the manifest is missing there.
                None => Err(super::missing_content(&named.digest)),
            })
            .collect()
    }

    /// Returns the selected manifests of an index.
    fn select_manifests(
        &mut self,
        of: &Digest,
        named: &[Descriptor],
    ) -> Result<Vec<Descriptor>, Finding> {
        let wanted = &self.selection.platforms;
        let fits = |one: &Descriptor| match &one.platform {
            None => true,
            Some(platform) => {
                wanted.is_empty() || wanted.iter().any(|wanted| platform.matches(wanted))
            }
        };
        let chosen: BTreeSet<_> = named
            .iter()
            .filter(|one| fits(one))
            .map(|one| &one.digest)
            .collect();
        let attests = |one: &Descriptor| {
            let about = one.annotations.get(ATTESTED_DIGEST);
            about.is_some_and(|about| chosen.iter().any(|digest| digest.as_str() == about))
        };
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for one in named {
            if !(fits(one) || attests(one)) {
                left.push(SkippedManifest {
                    descriptor: one.clone(),
                    is_excluded_by_selection: true,
                });
            } else if self.has_manifest(one)? {
                taken.push(one.clone());
            } else {
                left.push(SkippedManifest {
                    descriptor: one.clone(),
                    is_excluded_by_selection: false,
                });
            }
        }
        if taken.is_empty() && !named.is_empty() {
            let there: Vec<_> = named
                .iter()
                .filter_map(|one| one.platform.as_ref().map(ToString::to_string))
                .collect();
            return Err(Finding::error(
                codes::registry::NO_PLATFORM,
                format!(
                    "{of} has no image for the selected platforms; it has {}",
                    there.join(", ")
                ),
            )
            .hint("select other platforms with --platform, or omit the flag for all"));
        }
        self.graph.missing.extend(left);
        Ok(taken)
    }

    /// Returns `true` if the source has the manifest of `descriptor`. A layout that was written for
    /// selected platforms does not have the manifests of other platforms. For a registry the result
    /// is always `true`: the later read returns an error if the registry lacks the manifest.
    fn has_manifest(&self, descriptor: &Descriptor) -> Result<bool, Finding> {
        match self.source {
            ImageSource::Disk(disk) => disk.holds(&descriptor.digest),
            ImageSource::Registry { .. } | ImageSource::Packed(_) => Ok(true),
        }
    }

    fn take(&mut self, raw: &RawManifest) -> Result<ParsedManifest, Finding> {
        let bounds = &self.selection.bounds;
        self.seen.insert(raw.digest.clone());
        self.bytes += raw.bytes.len() as u64;
        if self.seen.len() > bounds.manifests {
            return Err(self.too_much(&format!("more than {} manifests", bounds.manifests)));
        }
        if self.bytes > bounds.bytes {
            return Err(self.too_much(&format!(
                "more than {} of manifests",
                format_size(bounds.bytes)
            )));
        }
        raw.parse().map_err(|why| {
            Finding::error(
                codes::registry::MALFORMED,
                format!("{} is invalid: {why}", raw.digest),
            )
            .hint("nothing was written; the publisher must build the image again")
        })
    }

    fn blob(&mut self, blob: &Descriptor) -> Result<(), Finding> {
        match self.graph.blobs.get(&blob.digest) {
            None => {
                self.graph.blobs.insert(blob.digest.clone(), blob.clone());
            }
            Some(known) if known.size != blob.size => {
                return Err(Finding::error(
                    codes::registry::MALFORMED,
                    format!(
                        "{} is declared with two sizes, {} and {} bytes",
                        blob.digest, known.size, blob.size
                    ),
                )
                .hint("nothing was written; the publisher must build the image again"));
            }
            Some(_) => {}
        }
        if self.graph.blobs.len() > self.selection.bounds.blobs {
            return Err(self.too_much(&format!("more than {} blobs", self.selection.bounds.blobs)));
        }
        Ok(())
    }

    #[expect(
        clippy::unused_self,
        reason = "the argument completes a sentence at the call"
    )]
    fn too_much(&self, what: &str) -> Finding {
        Finding::error(codes::registry::TOO_LARGE, format!("the image has {what}"))
            .hint("nothing was written; check the reference")
    }
}

/// Returns the referrers of `subject`, and the manifests under tags such as `sha256-….sig`.
async fn attachments_of(
    source: &ImageSource,
    subject: &Digest,
    tags: bool,
) -> Result<Vec<(ManifestRole, RawManifest)>, Finding> {
    let mut found = Vec::new();
    for listed in source.referrers(subject).await? {
        // The list names a manifest that was deleted. It is skipped, and the other referrers are
        // copied.
        let Some(raw) = source.manifest(&listed).await? else {
            continue;
        };
        // The subject is read from the document and not from the list, because every user with
        // write access can change the list.
        let refers = raw.parse().is_ok_and(|parsed| {
            parsed
                .subject()
                .is_some_and(|named| named.digest == *subject)
        });
        if refers {
            found.push((ManifestRole::Referrer(subject.clone()), raw));
        }
    }
    if tags {
        for kind in LEGACY {
            let tag = legacy_tag(subject, kind);
            if let Some(raw) = source.tagged(&tag).await? {
                found.push((ManifestRole::Tagged(tag), raw));
            }
        }
    }
    Ok(found)
}
