//! Sources and targets of copies: repositories, layout folders, archives and packed images.

mod disk;
mod graph;
pub(crate) mod names;
mod relocate;
mod send;
mod sources;
mod write;
mod write_blob;

use std::path::Path;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::reference::{Digest, Reference};

use crate::blob::Blob;
use crate::limits::Limits;
use crate::manifest::{Descriptor, Manifest, RawManifest};
use crate::pack::PackedImage;
use crate::progress::Progress;
use crate::registry::{Client, RegistryErrorReason, Repository};

pub use disk::{DiskLayout, NamedImage};
use graph::build_graph;
pub use graph::{CopyOptions, Graph, GraphLimits, ManifestNode, ManifestRole, SkippedManifest};
pub use names::ImageSelector;
pub use relocate::{RegistryMirror, Relocation};
pub use send::{CopyResult, MountSources, send};
pub use sources::{ListedAttachment, ListedImage, Sources};
pub use write::{WriteResult, write_archive, write_layout};

/// Source of an image. Cheap to clone.
#[derive(Debug, Clone)]
pub enum ImageSource {
    /// A repository in a registry.
    Registry {
        /// Client for the registry.
        client: Client,
        /// Repository.
        repository: Repository,
    },
    /// A layout on the local disk, folder or archive.
    Disk(Arc<DiskLayout>),
    /// A packed image in memory.
    Packed(Arc<PackedImage>),
}

impl ImageSource {
    /// Returns the repository of a reference, without a request.
    pub fn registry(client: &Client, reference: &Reference) -> Self {
        Self::Registry {
            client: client.clone(),
            repository: reference.into(),
        }
    }

    /// Opens a layout folder or archive.
    pub fn disk(path: &Path) -> Result<Self, Finding> {
        DiskLayout::open(path).map(|disk| Self::Disk(Arc::new(disk)))
    }

    /// Returns the manifest or index with this name. In a registry, the name is a tag or a digest.
    async fn named(&self, name: &str) -> Result<Option<RawManifest>, Finding> {
        match self {
            Self::Registry { client, repository } => {
                match client.raw_manifest(repository, name).await {
                    Ok(raw) => Ok(Some(raw)),
                    Err(error) if matches!(error.reason, RegistryErrorReason::NotFound) => Ok(None),
                    Err(error) => Err(error.finding()),
                }
            }
            Self::Disk(disk) => match name.parse::<Digest>() {
                Ok(digest) => disk.raw(&digest),
                Err(_) => disk.tagged(name),
            },
            Self::Packed(packed) => {
                Ok((packed.digest.as_str() == name).then(|| RawManifest::from(&packed.manifest)))
            }
        }
    }

    /// Returns the manifest or index of a descriptor; `None` if the source does not have this
    /// manifest or index.
    pub async fn manifest(&self, descriptor: &Descriptor) -> Result<Option<RawManifest>, Finding> {
        match self {
            Self::Disk(disk) => disk.manifest(descriptor),
            Self::Registry { .. } | Self::Packed(_) => self.named(descriptor.digest.as_str()).await,
        }
    }

    /// Returns the blob of a descriptor. Its bytes are requested only when the caller reads them.
    pub fn blob(&self, descriptor: &Descriptor) -> Result<Blob, Finding> {
        match self {
            Self::Registry { client, repository } => Ok(client.remote_blob(repository, descriptor)),
            Self::Disk(disk) => disk.blob(descriptor),
            Self::Packed(packed) => packed
                .blobs()
                .find(|blob| blob.descriptor.digest == descriptor.digest)
                .cloned()
                .ok_or_else(|| missing_content(&descriptor.digest)),
        }
    }

    /// Returns the blob of a descriptor. Received bytes are reported to `progress`.
    fn watched_blob(
        &self,
        descriptor: &Descriptor,
        progress: &Arc<dyn Progress>,
    ) -> Result<Blob, Finding> {
        match self {
            Self::Registry { client, repository } => Ok(client
                .with_progress(Arc::clone(progress))
                .remote_blob(repository, descriptor)),
            _ => self.blob(descriptor),
        }
    }

    /// Returns all referrers of `subject`.
    pub async fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>, Finding> {
        match self {
            Self::Registry { client, repository } => client
                .referrers(repository, subject)
                .await
                .map_err(|error| error.finding()),
            Self::Disk(disk) => disk.referrers(subject),
            Self::Packed(_) => Ok(Vec::new()),
        }
    }

    /// Returns the manifest under a tag such as `sha256-….sig`; `None` if the tag does not exist.
    pub async fn tagged(&self, tag: &str) -> Result<Option<RawManifest>, Finding> {
        if let Self::Registry { client, repository } = self {
            // HEAD is cheaper than GET, and most digests have no such tag.
            let there = client.manifest_exists(repository, tag).await;
            if there.map_err(|error| error.finding())?.is_none() {
                return Ok(None);
            }
        }
        self.named(tag).await
    }

    /// Returns the repository, if the source is a repository.
    pub fn repository(&self) -> Option<&Repository> {
        match self {
            Self::Registry { repository, .. } => Some(repository),
            Self::Disk(_) | Self::Packed(_) => None,
        }
    }
}

/// Returns the finding for missing content to which another document refers.
fn missing_content(digest: &Digest) -> Finding {
    Finding::error(codes::registry::NOT_FOUND, format!("{digest} is missing in the source"))
        .hint("the source is incomplete: copy it again from its origin, or select platforms that it has (--platform)")
}

/// An image and its source: the root of a graph.
#[derive(Debug, Clone)]
pub struct LocatedImage {
    /// Source.
    pub source: ImageSource,
    /// Manifest or index.
    pub root: RawManifest,
    /// Name in a layout: the whole reference or a tag.
    pub name: Option<String>,
    /// Original reference.
    pub origin: Option<Reference>,
}

impl LocatedImage {
    /// Resolves a reference.
    pub async fn reference(client: &Client, reference: &Reference) -> Result<Self, Finding> {
        let source = ImageSource::registry(client, reference);
        let name = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or_default().to_owned(),
        };
        let root = client
            .raw_manifest(&reference.into(), &name)
            .await
            .map_err(|error| error.finding())?;
        Ok(Self {
            source,
            root,
            name: reference.tag().map(str::to_owned),
            origin: Some(reference.clone()),
        })
    }

    /// Returns an image that a list of images names. The image is read from `source` by its digest.
    pub async fn listed(source: ImageSource, listed: &ListedImage) -> Result<Self, Finding> {
        let descriptor = listed.descriptor();
        let root = source.manifest(&descriptor).await?;
        Ok(Self {
            source,
            root: root
                .ok_or_else(|| missing_content(&listed.digest).about(listed.reference.clone()))?,
            name: None,
            origin: Some(listed.origin()?),
        })
    }

    /// Returns a packed image.
    pub fn packed(packed: PackedImage) -> Self {
        Self {
            root: RawManifest::from(&packed.manifest),
            source: ImageSource::Packed(Arc::new(packed)),
            name: None,
            origin: None,
        }
    }

    /// Returns the selected image of a layout.
    pub fn disk(disk: Arc<DiskLayout>, pick: &ImageSelector) -> Result<Self, Finding> {
        let named = disk.image(pick)?;
        Self::named(disk, named)
    }

    /// Returns an image from the index of a layout.
    pub fn named(disk: Arc<DiskLayout>, named: NamedImage) -> Result<Self, Finding> {
        let root = disk.manifest(&named.descriptor)?.ok_or_else(|| {
            // The manifest of an entry in the index is missing, so the layout is incomplete.
            disk.missing_blob(&named.descriptor.digest)
        })?;
        Ok(Self {
            source: ImageSource::Disk(disk),
            origin: named.origin(),
            root,
            name: named.name,
        })
    }
}

impl LocatedImage {
    /// Returns the unpacked files of the bundle. The image is handled as untrusted.
    pub async fn files(&self, limits: &Limits) -> Result<Files, Finding> {
        let manifest = Manifest::parse(self.root.bytes.clone(), Some(&self.root.media_type))
            .map_err(|why| {
                Finding::error(
                    codes::registry::MALFORMED,
                    format!("{} is invalid: {why}", self.root.digest),
                )
                .hint("a bundle is a single image, not an index of several")
            })?;
        if let ImageSource::Registry { client, repository } = &self.source {
            let pinned = repository.pin(&self.root.digest)?;
            let files = client.pull_content(&pinned, &manifest, limits).await;
            return files.map_err(|error| error.finding());
        }
        let packed = PackedImage {
            digest: manifest.digest.clone(),
            config: self.source.blob(&manifest.config)?,
            layers: manifest
                .layers
                .iter()
                .map(|layer| self.source.blob(layer))
                .collect::<Result<_, _>>()?,
            manifest,
        };
        packed.files(*limits).map_err(|error| error.finding())
    }
}

/// An image with the graph of all content that is copied with it.
#[derive(Debug, Clone)]
pub struct CopyPlan {
    /// Image.
    pub image: LocatedImage,
    /// Graph.
    pub graph: Graph,
}

impl CopyPlan {
    /// Builds the graph of all content that is copied.
    pub async fn build(image: LocatedImage, selection: &CopyOptions) -> Result<Self, Finding> {
        let graph = build_graph(&image.source, &image.root, selection).await?;
        Ok(Self { image, graph })
    }

    /// Returns the original reference of the image.
    pub fn origin(&self) -> Result<&Reference, Finding> {
        let image = &self.image;
        image.origin.as_ref().ok_or_else(|| {
            let name = image.name.clone();
            sources::no_origin(&name.unwrap_or_else(|| image.root.digest.to_string()))
        })
    }

    /// Returns the digest of the image.
    pub fn digest(&self) -> &Digest {
        &self.image.root.digest
    }
}

#[cfg(test)]
mod messages;
#[cfg(test)]
mod tests;
