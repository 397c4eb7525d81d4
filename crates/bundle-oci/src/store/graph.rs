//! Everything that belongs to an image: what is below it, and what refers to it, found from its manifest and bounded in every direction.
//! Not here: moving any of it (write, send).

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::Source;
use crate::attached::{LEGACY, legacy_tag};
use crate::limits::human;
use crate::manifest::{Descriptor, Parsed, Platform, RawManifest};
use crate::media;

/// Requests under way at once.
const AT_ONCE: usize = 8;
/// By which annotation builders of images attach an attestation to one image of an index.
const ATTESTS: &str = "vnd.docker.reference.digest";

/// How far a walk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Indexes above an image.
    pub depth: usize,
    /// Referrers above each other: a signature on an attestation on an image is two.
    pub referrers: usize,
    /// Manifests and indexes in all.
    pub manifests: usize,
    /// Their bytes in all: they are kept in memory.
    pub bytes: u64,
    /// Blobs in all.
    pub blobs: usize,
}

impl Default for Bounds {
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

/// What goes along.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Whether signatures, attestations and everything else that refers to the image are left behind.
    pub without_referrers: bool,
    /// For which machines; all if none is named.
    pub platforms: Vec<Platform>,
    /// What goes along of what refers to the image, where that was written down; else the source is asked.
    pub attached: Option<Vec<(Role, Descriptor)>>,
    /// How far to go.
    pub bounds: Bounds,
}

/// Everything that belongs to an image.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Manifests and indexes in an order in which each comes after all that it names.
    pub nodes: Vec<Node>,
    /// All other content, by digest.
    pub blobs: BTreeMap<Digest, Descriptor>,
    /// What an index names and does not go along.
    pub missing: Vec<Missing>,
}

/// A manifest or index of a graph.
#[derive(Debug, Clone)]
pub struct Node {
    /// The document.
    pub raw: RawManifest,
    /// What it is in the graph.
    pub role: Role,
    /// The blobs that it names.
    pub blobs: Vec<Digest>,
    /// What others are told of it, in lists of referrers.
    pub described: Descriptor,
}

/// What a manifest is in a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The image, or a part of it.
    Content,
    /// It refers to this.
    Referrer(Digest),
    /// It is kept under this tag for what the tag names.
    Tagged(String),
}

/// Something that an index names and that does not go along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What it is.
    pub descriptor: Descriptor,
    /// Whether that was asked for; else the source does not have it.
    pub chosen: bool,
}

impl Graph {
    /// Bytes of everything in it.
    pub fn size(&self) -> u64 {
        let blobs: u64 = self.blobs.values().map(|blob| blob.size).sum();
        let documents = self.nodes.iter().map(|node| node.raw.bytes.len() as u64);
        blobs + documents.sum::<u64>()
    }

    /// How many manifests refer to the image, or are kept beside it.
    pub fn attached(&self) -> usize {
        let attached = self.nodes.iter().filter(|node| node.role != Role::Content);
        attached.count()
    }
}

/// Finds everything that belongs to `root`.
pub(super) async fn walk(
    source: &Source,
    root: &RawManifest,
    selection: &Selection,
) -> Result<Graph, Finding> {
    let mut walk = Walk {
        source,
        selection,
        seen: BTreeSet::new(),
        bytes: 0,
        graph: Graph::default(),
    };
    let subjects = walk.down(root.clone(), &Role::Content).await?;
    match &selection.attached {
        _ if selection.without_referrers => {}
        Some(listed) => walk.listed(listed).await?,
        None => walk.around(subjects).await?,
    }
    Ok(walk.graph)
}

struct Walk<'a> {
    source: &'a Source,
    selection: &'a Selection,
    /// Content names itself by its hash, so there are no cycles; but the same may be named many times.
    seen: BTreeSet<Digest>,
    bytes: u64,
    graph: Graph,
}

impl Walk<'_> {
    /// Takes `root` and everything below it, what is named first; gives the digests of the manifests.
    async fn down(&mut self, root: RawManifest, role: &Role) -> Result<Vec<Digest>, Finding> {
        if self.seen.contains(&root.digest) {
            return Ok(Vec::new());
        }
        let mut read: BTreeMap<Digest, (RawManifest, Parsed)> = BTreeMap::new();
        let top = root.digest.clone();
        let mut level = vec![root];
        for depth in 0.. {
            let mut next = Vec::new();
            for raw in level {
                let parsed = self.take(&raw)?;
                if let Parsed::Index(index) = &parsed {
                    next.extend(self.choose(&raw.digest, &index.manifests)?);
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
        self.settle(&top, &mut read, role, &mut order)?;
        Ok(order)
    }

    /// Puts what was read into the graph, what is named before what names it.
    fn settle(
        &mut self,
        digest: &Digest,
        read: &mut BTreeMap<Digest, (RawManifest, Parsed)>,
        role: &Role,
        order: &mut Vec<Digest>,
    ) -> Result<(), Finding> {
        let Some((raw, parsed)) = read.remove(digest) else {
            return Ok(());
        };
        let mut blobs = Vec::new();
        match &parsed {
            Parsed::Index(index) => {
                for child in &index.manifests {
                    // What is below a referrer belongs to the image, not beside it.
                    self.settle(&child.digest, read, &Role::Content, order)?;
                }
            }
            Parsed::Image(manifest) => {
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
        self.graph.nodes.push(Node {
            raw,
            role: role.clone(),
            blobs,
            described,
        });
        Ok(())
    }

    /// Follows what refers to `subjects`, and what refers to that.
    async fn around(&mut self, mut subjects: Vec<Digest>) -> Result<(), Finding> {
        for depth in 0..=self.selection.bounds.referrers {
            let source = self.source;
            let found: Vec<(Digest, Vec<(Role, RawManifest)>)> = stream::iter(subjects)
                .map(|subject| async move {
                    let beside = beside(source, &subject, depth == 0).await?;
                    Ok::<_, Finding>((subject, beside))
                })
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            let mut next = Vec::new();
            for (_, beside) in found {
                for (role, raw) in beside {
                    next.extend(self.down(raw, &role).await?);
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

    /// Takes what was written down to refer to the image, by its digest.
    async fn listed(&mut self, listed: &[(Role, Descriptor)]) -> Result<(), Finding> {
        let wanted = listed.iter().map(|(_, one)| one.clone()).collect();
        let found = self.fetch(wanted).await?;
        for ((role, _), raw) in listed.iter().zip(found) {
            self.down(raw, role).await?;
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
                Some(raw) => Err(crate::blob::changed(
                    &named.digest,
                    &format!("{} bytes where {} are named", raw.bytes.len(), named.size),
                )),
                // Layouts were asked a moment ago, in `choose`; so this is a registry that has lost it.
                None => Err(super::not_there(&named.digest)),
            })
            .collect()
    }

    /// Which of the manifests of an index go along.
    fn choose(&mut self, of: &Digest, named: &[Descriptor]) -> Result<Vec<Descriptor>, Finding> {
        let wanted = &self.selection.platforms;
        let fits = |one: &Descriptor| match &one.platform {
            None => true,
            Some(platform) => wanted.is_empty() || wanted.iter().any(|wanted| platform.is(wanted)),
        };
        let chosen: BTreeSet<_> = named
            .iter()
            .filter(|one| fits(one))
            .map(|one| &one.digest)
            .collect();
        let attests = |one: &Descriptor| {
            let about = one.annotations.get(ATTESTS);
            about.is_some_and(|about| chosen.iter().any(|digest| digest.as_str() == about))
        };
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for one in named {
            if !(fits(one) || attests(one)) {
                left.push(Missing {
                    descriptor: one.clone(),
                    chosen: true,
                });
            } else if self.is_there(one)? {
                taken.push(one.clone());
            } else {
                left.push(Missing {
                    descriptor: one.clone(),
                    chosen: false,
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
                    "{of} has nothing for the chosen platforms; it is for {}",
                    there.join(", ")
                ),
            )
            .hint("choose others with --platform, or leave it out for all"));
        }
        self.graph.missing.extend(left);
        Ok(taken)
    }

    /// Only layouts may lack what an index names: they were written for chosen platforms. A registry has it, or is at fault.
    fn is_there(&self, descriptor: &Descriptor) -> Result<bool, Finding> {
        match self.source {
            Source::Disk(disk) => disk.holds(&descriptor.digest),
            Source::Registry { .. } | Source::Packed(_) => Ok(true),
        }
    }

    fn take(&mut self, raw: &RawManifest) -> Result<Parsed, Finding> {
        let bounds = &self.selection.bounds;
        self.seen.insert(raw.digest.clone());
        self.bytes += raw.bytes.len() as u64;
        if self.seen.len() > bounds.manifests {
            return Err(self.too_much(&format!("more than {} manifests", bounds.manifests)));
        }
        if self.bytes > bounds.bytes {
            return Err(self.too_much(&format!("more than {} of manifests", human(bounds.bytes))));
        }
        raw.parse().map_err(|why| {
            Finding::error(
                codes::registry::MALFORMED,
                format!("{} cannot be used: {why}", raw.digest),
            )
            .hint("nothing was written; whoever made it has to make it again")
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
                        "{} is said to have {} bytes, and {} bytes",
                        blob.digest, known.size, blob.size
                    ),
                )
                .hint("nothing was written; whoever made it has to make it again"));
            }
            Some(_) => {}
        }
        if self.graph.blobs.len() > self.selection.bounds.blobs {
            return Err(self.too_much(&format!("more than {} blobs", self.selection.bounds.blobs)));
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "reads like a sentence where it is used")]
    fn too_much(&self, what: &str) -> Finding {
        Finding::error(codes::registry::TOO_LARGE, format!("the image has {what}"))
            .hint("nothing was written; check that the reference names what you mean")
    }
}

/// What refers to `subject`, and what older tools keep for it under tags.
async fn beside(
    source: &Source,
    subject: &Digest,
    tags: bool,
) -> Result<Vec<(Role, RawManifest)>, Finding> {
    let mut found = Vec::new();
    for listed in source.referrers(subject).await? {
        // Lists name what was deleted since; that is no reason to leave the rest behind.
        let Some(raw) = source.manifest(&listed).await? else {
            continue;
        };
        // Only the document itself says what it refers to; a list can be written by anybody.
        let refers = raw.parse().is_ok_and(|parsed| {
            parsed
                .subject()
                .is_some_and(|named| named.digest == *subject)
        });
        if refers {
            found.push((Role::Referrer(subject.clone()), raw));
        }
    }
    if tags {
        for kind in LEGACY {
            let tag = legacy_tag(subject, kind);
            if let Some(raw) = source.tagged(&tag).await? {
                found.push((Role::Tagged(tag), raw));
            }
        }
    }
    Ok(found)
}
