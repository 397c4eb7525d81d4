//! Resolves tags. Reads manifests and small blobs, and checks their digests.

use bundle_core::reference::{Digest, PinnedReference, Reference};
use bytes::{Bytes, BytesMut};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;

use crate::hash::Hasher;
use crate::limits::MANIFEST_BYTES;
use crate::manifest::{Descriptor, Manifest, RawManifest};
use crate::media;
use crate::registry::memory::reserve;
use crate::registry::transport::RegistryRequest;
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository};

/// Header with the digest of a manifest.
const CONTENT_DIGEST: &str = "docker-content-digest";

impl Client {
    /// Returns the digest of a reference. If the reference has a digest, no request is sent. For a
    /// tag, the registry returns the digest, which is checked later when the manifest is read.
    pub async fn resolve(&self, reference: &Reference) -> Result<Digest, RegistryError> {
        if let Some(digest) = reference.digest() {
            return Ok(digest.clone());
        }
        let tag = reference.tag().unwrap_or_default();
        self.run("resolve", reference, self.deadlines.call, async {
            match self.head_manifest(&reference.into(), tag).await? {
                Some(digest) => Ok(digest),
                None => Err(RegistryErrorReason::NotFound),
            }
        })
        .await
    }

    /// Returns the manifest of a single image. Its digest is checked. Fails for more than 4 MiB.
    pub async fn manifest(&self, pinned: &PinnedReference) -> Result<Manifest, RegistryError> {
        let repository = Repository::from(pinned.reference());
        let work = self.get_manifest(&repository, pinned.digest());
        self.run("read the manifest of", pinned, self.deadlines.call, work)
            .await
    }

    /// Returns the digest of a manifest by tag or digest; `None` if the manifest does not exist.
    pub(in crate::registry) async fn head_manifest(
        &self,
        repository: &Repository,
        name: &str,
    ) -> Result<Option<Digest>, RegistryErrorReason> {
        let path = format!("manifests/{name}");
        let ask = RegistryRequest::head(repository, path.clone()).accepting(media::ACCEPT_MANIFEST);
        let response = match self.send(&ask).await {
            Ok(response) => response,
            Err(RegistryErrorReason::NotFound) => return Ok(None),
            Err(reason) => return Err(reason),
        };
        expect_manifest(&response)?;
        if let Some(digest) = declared_digest(&response)? {
            return Ok(Some(digest));
        }
        // Old registries do not send the header. Therefore the manifest is read, and its digest is
        // computed.
        let ask = RegistryRequest::get(repository, path).accepting(media::ACCEPT_MANIFEST);
        let response = self.send(&ask).await?;
        let body = self
            .http
            .body(response, MANIFEST_BYTES, "the manifest", &*self.memory)
            .await?;
        Ok(Some(Digest::of(&body)))
    }

    pub(in crate::registry) async fn get_manifest(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Manifest, RegistryErrorReason> {
        single(self.get_raw(repository, digest.as_str()).await?)
    }

    /// Returns the manifest if it has at most `limit` bytes, and otherwise `None`.
    pub(in crate::registry) async fn get_manifest_within(
        &self,
        repository: &Repository,
        digest: &Digest,
        limit: u64,
    ) -> Result<Option<Manifest>, RegistryErrorReason> {
        let raw = self.get_raw_within(repository, digest.as_str(), limit);
        raw.await?.map(single).transpose()
    }

    /// Returns all bytes of a small blob. Its digest is checked.
    pub(in crate::registry) async fn get_blob(
        &self,
        repository: &Repository,
        blob: &Descriptor,
        limit: u64,
        what: &str,
    ) -> Result<Bytes, RegistryErrorReason> {
        if blob.size > limit {
            return Err(RegistryErrorReason::TooLarge {
                what: what.to_owned(),
                limit,
            });
        }
        reserve(&*self.memory, blob.size).await?;
        let mut transfer = self.download(repository, blob, 0, Some(Hasher::new()));
        let mut all = BytesMut::with_capacity(usize::try_from(blob.size).unwrap_or_default());
        while let Some(piece) = transfer.piece().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}

/// Returns the manifest of a single image, or an error for an index.
fn single(raw: RawManifest) -> Result<Manifest, RegistryErrorReason> {
    if media::is_index(&raw.media_type) {
        return Err(RegistryErrorReason::Index);
    }
    Manifest::parse(raw.bytes, Some(&raw.media_type))
        .map_err(|why| RegistryErrorReason::Malformed(format!("the manifest is invalid: {why}")))
}

/// Returns the media type of a response, without parameters.
pub(in crate::registry) fn media_type(response: &Response) -> String {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split(';').next())
        .map_or_else(String::new, |text| text.trim().to_ascii_lowercase())
}

/// Returns the media type of the response if it is the media type of a manifest or an index.
/// Otherwise returns an error.
pub(in crate::registry) fn expect_manifest(
    response: &Response,
) -> Result<String, RegistryErrorReason> {
    let media_type = media_type(response);
    if media::is_manifest(&media_type) || media::is_index(&media_type) {
        return Ok(media_type);
    }
    Err(RegistryErrorReason::WrongMediaType {
        found: if media_type.is_empty() {
            "content without a media type".to_owned()
        } else {
            media_type.chars().take(100).collect()
        },
        wanted: "an image manifest",
    })
}

pub(in crate::registry) fn declared_digest(
    response: &Response,
) -> Result<Option<Digest>, RegistryErrorReason> {
    let Some(value) = response.headers().get(CONTENT_DIGEST) else {
        return Ok(None);
    };
    let digest = value.to_str().ok().and_then(|text| text.parse().ok());
    digest.map(Some).ok_or_else(|| {
        RegistryErrorReason::Malformed("the registry's digest header is not a digest".to_owned())
    })
}
