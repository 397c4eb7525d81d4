//! Content from an image in a registry: a tag is resolved to a digest, and everything is fetched by
//! digest. `registries` has the credentials.

use bundle_core::content::ContentId;
use bundle_core::names::KubeName;
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::Reference;
use bundle_core::review::Source;
use bundle_oci::Limits;
use bundle_oci::registry::Client;
use bundle_oci::unpack::FileSink;

use super::{ContentSource, FetchedFiles, SourceError};

/// An image, and a client with the credentials of its pull secret.
pub(crate) struct ImageSource {
    registry: Client,
    reference: Reference,
    pull_secret: Option<KubeName>,
}

impl ImageSource {
    /// Creates the source. `registry` has the credentials of `pull_secret`.
    pub(super) fn new(
        registry: Client,
        reference: &Reference,
        pull_secret: Option<&KubeName>,
    ) -> Self {
        Self {
            registry,
            reference: reference.clone(),
            pull_secret: pull_secret.cloned(),
        }
    }
}

impl ContentSource for ImageSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        let digest = match self.reference.digest() {
            Some(digest) => digest.clone(),
            None => self.registry.resolve(&self.reference).await?,
        };
        let source = Source::Image {
            reference: self.reference.clone(),
            pull_secret: self.pull_secret.clone(),
        };
        Ok(ContentId::new(&source, digest))
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        let pinned = self.reference.pin(content.digest().clone());
        let limits = Limits::default();
        Ok(self.registry.pull_onto(&pinned, &limits, sink).await?)
    }

    async fn signatures(&self, content: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        let pinned = self.reference.pin(content.digest().clone());
        let signatures = self.registry.signatures(&pinned).await;
        signatures.map_err(Unavailable::from)
    }
}

#[cfg(test)]
mod tests;
