//! Sources of content. A source is first resolved to exact content, for example a digest. Then
//! exactly this content is fetched. Later checks compare the fetched content with the content that
//! the source then refers to. Each kind of source has its own module.

mod config_maps;
mod git;
mod http;
mod image;
mod upload;

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_core::content::ContentId;
use bundle_core::plan::retry::source::NamedContent;
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::review::{Requester, Source};
use bundle_oci::registry::RegistryError;
use bundle_oci::unpack::FileSink;

pub(crate) use self::config_maps::ConfigMapsError;
use self::config_maps::ConfigMapsSource;
pub(crate) use self::git::GitSourceError;
use self::git::{GitAccess, GitSource};
use self::http::HttpSource;
pub(crate) use self::http::HttpSourceError;
use self::image::ImageSource;
use self::upload::UploadSource;
pub(crate) use self::upload::UploadSourceError;
use crate::budget::lookups::LookupMemory;
use crate::clients::registries::PullSecretError;
use crate::shared::Shared;

/// The reason why a source could not be resolved or fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The pull secret cannot be used.
    #[error(transparent)]
    PullSecret(#[from] PullSecretError),
    /// The registry failed, or returned content with another digest.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The ConfigMaps are missing, are not immutable, or are not valid content.
    #[error(transparent)]
    ConfigMaps(#[from] ConfigMapsError),
    /// The repository cannot be fetched, or does not contain valid content.
    #[error(transparent)]
    Git(#[from] GitSourceError),
    /// The archive cannot be fetched, or is not valid content.
    #[error(transparent)]
    Http(#[from] HttpSourceError),
    /// The content was not uploaded, or is not valid content.
    #[error(transparent)]
    Upload(#[from] UploadSourceError),
}

/// Fetched content: the value that the sink returned for each file, by path, and the sink itself.
pub(crate) type FetchedFiles<S> = (BTreeMap<String, <S as FileSink>::File>, S);

/// An open source: its credentials were read, and no content is fetched yet.
pub(crate) trait ContentSource: Send + Sync {
    /// Resolves the source to the content that it refers to now.
    fn resolve(&self) -> impl Future<Output = Result<ContentId, SourceError>> + Send;

    /// Returns the content that the source refers to now. Returns `None` if this content equals
    /// `recorded`.
    fn changed(
        &self,
        recorded: &ContentId,
    ) -> impl Future<Output = Result<Option<ContentId>, SourceError>> + Send {
        async {
            let now = self.resolve().await?;
            Ok((now.digest() != recorded.digest()).then_some(now))
        }
    }

    /// Fetches exactly `content` into `sink`, within the limits of a bundle. Fails if the source
    /// now contains other content.
    fn fetch<S>(
        &self,
        content: &ContentId,
        sink: S,
    ) -> impl Future<Output = Result<FetchedFiles<S>, SourceError>> + Send
    where
        S: FileSink<File: Send> + Send + 'static;

    /// Returns the signatures of `content`. Only images have signatures.
    fn signatures(
        &self,
        content: &ContentId,
    ) -> impl Future<Output = Result<Vec<RawSignature>, Unavailable>> + Send;
}

/// An open source, and the content that it names.
pub(crate) struct OpenSource {
    kind: SourceKind,
    named: NamedContent,
}

/// An open source of any kind.
enum SourceKind {
    Image(ImageSource),
    ConfigMaps(ConfigMapsSource),
    Git(Box<GitSource>),
    Http(Box<HttpSource>),
    Upload(UploadSource),
}

/// The Bundle for which a source is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceOwner<'a> {
    /// The class of the Bundle.
    pub(crate) class: &'a str,
    /// The requester, who must have permission to read the source. The limits of the requester
    /// apply.
    pub(crate) requester: &'a Requester,
    /// Uid of the Bundle. `None` after the content of the Bundle was unpacked for the first time.
    pub(crate) uid: Option<&'a str>,
}

/// Opens `source` of a Bundle, and reads the credentials that the source names. `memory` reserves
/// the memory of all responses of a registry except layers.
pub(crate) async fn open(
    shared: &Shared,
    source: &Source,
    owner: SourceOwner<'_>,
    memory: Arc<LookupMemory>,
) -> Result<OpenSource, SourceError> {
    Ok(OpenSource {
        kind: open_kind(shared, source, owner, memory).await?,
        named: owner.named(source),
    })
}

async fn open_kind(
    shared: &Shared,
    source: &Source,
    owner: SourceOwner<'_>,
    memory: Arc<LookupMemory>,
) -> Result<SourceKind, SourceError> {
    let class = owner.class;
    let is_insecure = source
        .host()
        .is_some_and(|host| shared.allows_insecure(class, host));
    match source {
        Source::Image {
            reference,
            credentials,
        } => {
            let registry = shared.registry_for(reference, class, credentials).await?;
            let image = ImageSource::new(&registry, reference, credentials, memory);
            Ok(SourceKind::Image(image))
        }
        Source::ConfigMaps(parts) => {
            let config_maps = ConfigMapsSource::open(shared, parts);
            Ok(SourceKind::ConfigMaps(config_maps))
        }
        Source::Git {
            repository,
            directory,
            checkout,
            auth,
        } => {
            let fields = (repository, directory.as_str(), checkout, auth);
            let access = GitAccess::new(shared, (class, is_insecure), memory.requester(), auth);
            let git = GitSource::new(fields, access);
            Ok(SourceKind::Git(Box::new(git)))
        }
        Source::Http { url, auth } => {
            let http = HttpSource::open(shared, (url, auth), (class, is_insecure), memory).await?;
            Ok(SourceKind::Http(Box::new(http)))
        }
        Source::Upload => Ok(SourceKind::Upload(UploadSource::open(shared, owner.uid))),
    }
}

impl SourceOwner<'_> {
    /// Returns the kind of content that `source` of the Bundle names, for the retry policy.
    pub(crate) fn named(&self, source: &Source) -> NamedContent {
        NamedContent::of(source, self.uid.is_none())
    }
}

impl OpenSource {
    /// Returns the kind of content that the source names, for the retry policy.
    pub(crate) fn named(&self) -> NamedContent {
        self.named
    }

    /// Prepares the source. A git source waits for a folder of git, without a time limit. The
    /// caller must call this function before it reserves a transfer slot, so that the slot is not
    /// occupied during this wait.
    pub(crate) async fn prepare(&self) -> Result<(), SourceError> {
        match &self.kind {
            SourceKind::Git(git) => Ok(git.prepare().await?),
            SourceKind::Image(_)
            | SourceKind::ConfigMaps(_)
            | SourceKind::Http(_)
            | SourceKind::Upload(_) => Ok(()),
        }
    }
}

impl ContentSource for OpenSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        match &self.kind {
            SourceKind::Image(image) => image.resolve().await,
            SourceKind::ConfigMaps(config_maps) => config_maps.resolve().await,
            SourceKind::Git(git) => git.resolve().await,
            SourceKind::Http(http) => http.resolve().await,
            SourceKind::Upload(upload) => upload.resolve().await,
        }
    }

    async fn changed(&self, recorded: &ContentId) -> Result<Option<ContentId>, SourceError> {
        match &self.kind {
            SourceKind::Image(image) => image.changed(recorded).await,
            SourceKind::ConfigMaps(config_maps) => config_maps.changed(recorded).await,
            SourceKind::Git(git) => git.changed(recorded).await,
            SourceKind::Http(http) => http.changed(recorded).await,
            SourceKind::Upload(upload) => upload.changed(recorded).await,
        }
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        match &self.kind {
            SourceKind::Image(image) => image.fetch(content, sink).await,
            SourceKind::ConfigMaps(config_maps) => config_maps.fetch(content, sink).await,
            SourceKind::Git(git) => git.fetch(content, sink).await,
            SourceKind::Http(http) => http.fetch(content, sink).await,
            SourceKind::Upload(upload) => upload.fetch(content, sink).await,
        }
    }

    async fn signatures(&self, content: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        match &self.kind {
            SourceKind::Image(image) => image.signatures(content).await,
            SourceKind::ConfigMaps(config_maps) => config_maps.signatures(content).await,
            SourceKind::Git(git) => git.signatures(content).await,
            SourceKind::Http(http) => http.signatures(content).await,
            SourceKind::Upload(upload) => upload.signatures(content).await,
        }
    }
}
