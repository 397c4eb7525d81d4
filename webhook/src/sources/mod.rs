//! Sources of content: resolve a source to exact content, fetch that content, and compare it with
//! the content that the source names now. Each kind has its own module.

mod config_maps;
mod http;
mod image;

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_core::content::ContentId;
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::review::Source;
use bundle_oci::registry::RegistryError;
use bundle_oci::unpack::FileSink;

use self::config_maps::ConfigMapsSource;
pub(crate) use self::config_maps::{ConfigMapsError, HeldConfigMap};
use self::http::HttpSource;
pub(crate) use self::http::HttpSourceError;
use self::image::ImageSource;
use crate::budget::lookups::LookupMemory;
use crate::clients::registries::PullSecretError;
use crate::shared::Shared;

/// The reason why a source could not be resolved or fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// No provisioner of this version fetches this kind of source.
    #[error("source type {0:?} not supported")]
    Unsupported(&'static str),
    /// The pull secret cannot be used.
    #[error(transparent)]
    PullSecret(#[from] PullSecretError),
    /// The registry failed, or returned other content than requested.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The ConfigMaps are missing, not immutable or no valid content.
    #[error(transparent)]
    ConfigMaps(#[from] ConfigMapsError),
    /// The archive cannot be fetched, or is no valid content.
    #[error(transparent)]
    Http(#[from] HttpSourceError),
}

/// The files of fetched content by path, in the representation of the sink, and the sink.
pub(crate) type FetchedFiles<S> = (BTreeMap<String, <S as FileSink>::File>, S);

/// An open source: its credentials are read, and no content is fetched yet.
pub(crate) trait ContentSource: Send + Sync {
    /// Resolves the source to the content that it names now.
    fn resolve(&self) -> impl Future<Output = Result<ContentId, SourceError>> + Send;

    /// Returns the content that the source names now, or `None` if it is `recorded`.
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
    /// has other content now.
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

/// An open source of any kind.
pub(crate) enum OpenSource {
    Image(ImageSource),
    ConfigMaps(ConfigMapsSource),
    Http(Box<HttpSource>),
}

/// Fails if no provisioner of this version fetches this kind of source.
pub(crate) fn is_supported(source: &Source) -> Result<(), SourceError> {
    match source {
        Source::Image { .. } | Source::ConfigMaps(_) | Source::Http { .. } => Ok(()),
        other => Err(SourceError::Unsupported(other.kind())),
    }
}

/// Opens `source` of a Bundle of `class`, and reads the credentials that it names. Responses of a
/// registry other than layers are held in `memory`.
pub(crate) async fn open(
    shared: &Shared,
    source: &Source,
    class: &str,
    memory: Arc<LookupMemory>,
) -> Result<OpenSource, SourceError> {
    match source {
        Source::Image {
            reference,
            pull_secret,
        } => {
            let registry = shared.registry_for(pull_secret.as_ref()).await?;
            let image = ImageSource::new(&registry, reference, pull_secret.as_ref(), memory);
            Ok(OpenSource::Image(image))
        }
        Source::ConfigMaps(parts) => {
            let config_maps = ConfigMapsSource::open(shared, parts);
            Ok(OpenSource::ConfigMaps(config_maps))
        }
        Source::Http { url, auth } => {
            let http = HttpSource::open(shared, (url, auth), class, memory).await?;
            Ok(OpenSource::Http(Box::new(http)))
        }
        other => Err(SourceError::Unsupported(other.kind())),
    }
}

impl ContentSource for OpenSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        match self {
            Self::Image(image) => image.resolve().await,
            Self::ConfigMaps(config_maps) => config_maps.resolve().await,
            Self::Http(http) => http.resolve().await,
        }
    }

    async fn changed(&self, recorded: &ContentId) -> Result<Option<ContentId>, SourceError> {
        match self {
            Self::Image(image) => image.changed(recorded).await,
            Self::ConfigMaps(config_maps) => config_maps.changed(recorded).await,
            Self::Http(http) => http.changed(recorded).await,
        }
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        match self {
            Self::Image(image) => image.fetch(content, sink).await,
            Self::ConfigMaps(config_maps) => config_maps.fetch(content, sink).await,
            Self::Http(http) => http.fetch(content, sink).await,
        }
    }

    async fn signatures(&self, content: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        match self {
            Self::Image(image) => image.signatures(content).await,
            Self::ConfigMaps(config_maps) => config_maps.signatures(content).await,
            Self::Http(http) => http.signatures(content).await,
        }
    }
}
