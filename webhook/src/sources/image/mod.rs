//! Content from an image in a registry: a tag is resolved to a digest, and all content is fetched
//! by digest. The module `registries` reads the credentials.

use std::sync::Arc;

use bundle_core::content::ContentId;
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::Reference;
use bundle_core::review::Source;
use bundle_core::review::source::PullCredentials;
use bundle_oci::Limits;
use bundle_oci::registry::Client;
use bundle_oci::unpack::FileSink;

use super::{ContentSource, FetchedFiles, SourceError};
use crate::budget::lookups::LookupMemory;
use crate::clients::names;

/// An image, and a client with the credentials for its registry.
pub(crate) struct ImageSource {
    registry: Client,
    reference: Reference,
    credentials: PullCredentials,
    memory: Arc<LookupMemory>,
}

impl ImageSource {
    /// Creates the source. `registry` must be a client with these `credentials`. `memory` reserves
    /// the memory of all responses except layers.
    pub(super) fn new(
        registry: &Client,
        reference: &Reference,
        credentials: &PullCredentials,
        memory: Arc<LookupMemory>,
    ) -> Self {
        Self {
            registry: registry.with_memory(memory.clone()),
            reference: reference.clone(),
            credentials: credentials.clone(),
            memory,
        }
    }
}

impl ContentSource for ImageSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        let digest = if let Some(digest) = self.reference.digest() {
            digest.clone()
        } else {
            let resolving = self.registry.resolve(&self.reference);
            names::for_requester(self.memory.requester(), resolving).await?
        };
        let source = Source::Image {
            reference: self.reference.clone(),
            credentials: self.credentials.clone(),
        };
        Ok(ContentId::new(&source, digest))
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        let pinned = self.reference.pin(content.digest().clone());
        let limits = Limits::default();
        let fetching = self.registry.pull_onto(&pinned, &limits, sink);
        Ok(names::for_requester(self.memory.requester(), fetching).await?)
    }

    async fn signatures(&self, content: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        let pinned = self.reference.pin(content.digest().clone());
        let reading = self.registry.signatures(&pinned);
        let signatures = names::for_requester(self.memory.requester(), reading).await;
        signatures.map_err(Unavailable::from)
    }
}

#[cfg(test)]
mod tests;
