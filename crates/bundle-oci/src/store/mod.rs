//! Where images are kept, seen alike: a repository in a registry, a layout folder, an archive; and copying between them with all that belongs to them.
//! Not here: the protocol (registry) and the tar (archive); whether signatures hold (bundle-trust).

mod disk;
mod graph;
pub(crate) mod names;
mod relocate;
mod send;
mod sources;
mod write;

use std::path::Path;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::reference::{Digest, Reference};

use crate::blob::Blob;
use crate::limits::Limits;
use crate::manifest::{Descriptor, Manifest, RawManifest};
use crate::pack::Packed;
use crate::progress::Progress;
use crate::registry::{Client, Reason, Repository};

pub use disk::{Disk, Named};
use graph::walk;
pub use graph::{Bounds, Graph, Missing, Node, Role, Selection};
pub use names::Pick;
pub use relocate::{Mirror, Relocation};
pub use send::{Mounts, Sent, send};
pub use sources::{Attached, Listed, Sources};
pub use write::{Written, write_archive, write_layout};

/// Where content comes from. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Source {
    /// A repository in a registry.
    Registry {
        /// With whom to speak.
        client: Client,
        /// The repository.
        repository: Repository,
    },
    /// A layout on this disk, a folder or an archive.
    Disk(Arc<Disk>),
    /// What was packed just now.
    Packed(Arc<Packed>),
}

impl Source {
    /// A repository in a registry. Connects to nothing yet.
    pub fn registry(client: &Client, reference: &Reference) -> Self {
        Self::Registry {
            client: client.clone(),
            repository: reference.into(),
        }
    }

    /// A layout folder, or an archive.
    pub fn disk(path: &Path) -> Result<Self, Finding> {
        Disk::open(path).map(|disk| Self::Disk(Arc::new(disk)))
    }

    /// The document of that name: in a registry a tag or a digest.
    async fn named(&self, name: &str) -> Result<Option<RawManifest>, Finding> {
        match self {
            Self::Registry { client, repository } => {
                match client.raw_manifest(repository, name).await {
                    Ok(raw) => Ok(Some(raw)),
                    Err(error) if error.reason == Reason::NotFound => Ok(None),
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

    /// The manifest or index that a descriptor names; `None` if it is not there.
    pub async fn manifest(&self, descriptor: &Descriptor) -> Result<Option<RawManifest>, Finding> {
        match self {
            Self::Disk(disk) => disk.manifest(descriptor),
            Self::Registry { .. } | Self::Packed(_) => self.named(descriptor.digest.as_str()).await,
        }
    }

    /// The content that a descriptor names, to be read by whoever wants it.
    pub fn blob(&self, descriptor: &Descriptor) -> Result<Blob, Finding> {
        match self {
            Self::Registry { client, repository } => Ok(client.remote_blob(repository, descriptor)),
            Self::Disk(disk) => disk.blob(descriptor),
            Self::Packed(packed) => packed
                .blobs()
                .find(|blob| blob.descriptor.digest == descriptor.digest)
                .cloned()
                .ok_or_else(|| not_there(&descriptor.digest)),
        }
    }

    /// The same, telling `progress` what arrives.
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

    /// Everything that refers to `subject`, of whatever kind.
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

    /// What is kept beside a digest under a tag of the old kind, `sha256-….sig`; `None` if nothing is.
    pub async fn tagged(&self, tag: &str) -> Result<Option<RawManifest>, Finding> {
        if let Self::Registry { client, repository } = self {
            // Asking costs less than reading, and most have none.
            let there = client.manifest_exists(repository, tag).await;
            if there.map_err(|error| error.finding())?.is_none() {
                return Ok(None);
            }
        }
        self.named(tag).await
    }

    /// The repository, if it is one.
    pub fn repository(&self) -> Option<&Repository> {
        match self {
            Self::Registry { repository, .. } => Some(repository),
            Self::Disk(_) | Self::Packed(_) => None,
        }
    }
}

/// What is said of content that is named and not there.
fn not_there(digest: &Digest) -> Finding {
    Finding::error(codes::registry::NOT_FOUND, format!("{digest} is named, and is not there"))
        .hint("the source is not whole: copy it again from where it came, or choose platforms that are there (--platform)")
}

/// An image that is meant, with where it is: what a walk begins with.
#[derive(Debug, Clone)]
pub struct Located {
    /// Where it is.
    pub source: Source,
    /// The manifest or index.
    pub root: RawManifest,
    /// What it is called in a layout: the whole reference or a tag.
    pub name: Option<String>,
    /// The reference by which people know it.
    pub origin: Option<Reference>,
}

impl Located {
    /// What a reference means now.
    pub async fn reference(client: &Client, reference: &Reference) -> Result<Self, Finding> {
        let source = Source::registry(client, reference);
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

    /// An image of a list, by its digest, wherever the source is.
    pub async fn listed(source: Source, listed: &Listed) -> Result<Self, Finding> {
        let descriptor = listed.descriptor();
        let root = source.manifest(&descriptor).await?;
        Ok(Self {
            source,
            root: root.ok_or_else(|| not_there(&listed.digest).about(listed.reference.clone()))?,
            name: None,
            origin: Some(listed.origin()?),
        })
    }

    /// What was packed just now.
    pub fn packed(packed: Packed) -> Self {
        Self {
            root: RawManifest::from(&packed.manifest),
            source: Source::Packed(Arc::new(packed)),
            name: None,
            origin: None,
        }
    }

    /// An image of a layout.
    pub fn disk(disk: Arc<Disk>, pick: &Pick) -> Result<Self, Finding> {
        let named = disk.image(pick)?;
        Self::named(disk, named)
    }

    /// An image that a layout names.
    pub fn named(disk: Arc<Disk>, named: Named) -> Result<Self, Finding> {
        let root = disk.manifest(&named.descriptor)?.ok_or_else(|| {
            // The index names it, so a layout without it is not whole.
            disk.lacks(&named.descriptor.digest)
        })?;
        Ok(Self {
            source: Source::Disk(disk),
            origin: named.origin(),
            root,
            name: named.name,
        })
    }
}

impl Located {
    /// The files of the bundle, unpacked as if they had come from anywhere.
    pub async fn files(&self, limits: &Limits) -> Result<Files, Finding> {
        let manifest = Manifest::parse(self.root.bytes.clone(), Some(&self.root.media_type))
            .map_err(|why| {
                Finding::error(
                    codes::registry::MALFORMED,
                    format!("{} cannot be used: {why}", self.root.digest),
                )
                .hint("a bundle is one image, not an index of several")
            })?;
        if let Source::Registry { client, repository } = &self.source {
            let pinned = repository.pin(&self.root.digest)?;
            let files = client.pull_content(&pinned, &manifest, limits).await;
            return files.map_err(|error| error.finding());
        }
        let packed = Packed {
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

/// A located image with everything that goes along.
#[derive(Debug, Clone)]
pub struct Shipment {
    /// The image.
    pub image: Located,
    /// All of it.
    pub graph: Graph,
}

impl Shipment {
    /// Finds out what goes along.
    pub async fn gather(image: Located, selection: &Selection) -> Result<Self, Finding> {
        let graph = walk(&image.source, &image.root, selection).await?;
        Ok(Self { image, graph })
    }

    /// Where the image came from.
    pub fn origin(&self) -> Result<&Reference, Finding> {
        let image = &self.image;
        image.origin.as_ref().ok_or_else(|| {
            let name = image.name.clone();
            sources::no_origin(&name.unwrap_or_else(|| image.root.digest.to_string()))
        })
    }

    /// The digest of the image.
    pub fn digest(&self) -> &Digest {
        &self.image.root.digest
    }
}

#[cfg(test)]
mod tests;
