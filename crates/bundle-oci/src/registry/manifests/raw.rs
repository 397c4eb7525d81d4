//! Raw manifests and indexes, their referrers, and the tags of a repository.

use bundle_core::json;
use bundle_core::reference::Digest;
use reqwest::Method;

use crate::limits::{MANIFEST_BYTES, TAG_PAGES, TAGS};
use crate::manifest::{Descriptor, RawManifest};
use crate::media;
use crate::registry::manifests::read::{declared_digest, expect_manifest};
use crate::registry::transport::{RegistryRequest, RequestTarget};
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository};

/// Result of writing a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestStored {
    /// Digest of the manifest.
    pub digest: Digest,
    /// Fallback tag whose list contains the manifest as a referrer of its subject. `None` if the
    /// manifest has no subject, or if the registry has the referrers API.
    pub list: Option<String>,
}

#[derive(serde::Deserialize)]
struct Tags {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

impl Client {
    /// Returns the manifest or index with this tag or digest. Its digest is checked. Fails for more
    /// than 4 MiB.
    pub async fn raw_manifest(
        &self,
        repository: &Repository,
        name: &str,
    ) -> Result<RawManifest, RegistryError> {
        let work = self.get_raw(repository, name);
        self.run(
            "read the manifest of",
            &named(repository, name),
            self.deadlines.call,
            work,
        )
        .await
    }

    /// Returns the digest of the manifest or index with this tag or digest, or `None` if the
    /// manifest does not exist.
    pub async fn manifest_exists(
        &self,
        repository: &Repository,
        name: &str,
    ) -> Result<Option<Digest>, RegistryError> {
        let work = self.head_manifest(repository, name);
        self.run(
            "look up",
            &named(repository, name),
            self.deadlines.call,
            work,
        )
        .await
    }

    /// Writes a manifest or index under a tag or its digest. If the document has a subject, adds
    /// the document to the referrers of the subject.
    pub async fn put_raw_manifest(
        &self,
        repository: &Repository,
        name: &str,
        manifest: &RawManifest,
    ) -> Result<ManifestStored, RegistryError> {
        let origin = self.origin();
        let work = origin.put_manifest(repository, name, manifest);
        self.run(
            "write the manifest of",
            &named(repository, name),
            self.deadlines.call,
            work,
        )
        .await
    }

    /// Returns all referrers of the digest: from the referrers API and from the list under the
    /// fallback tag.
    ///
    /// An empty list means that both sources were read and contain no referrer. Every failure is an
    /// error.
    pub async fn referrers(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<Vec<Descriptor>, RegistryError> {
        // The future is boxed, because it is large: it has space for every kind of response, and
        // callers contain it in their own futures.
        let work = Box::pin(self.referrers_of(repository, subject));
        self.run(
            "list the referrers of",
            &named(repository, subject.as_str()),
            self.deadlines.call,
            work,
        )
        .await
    }

    /// Returns the tags of the repository, in the registry's order.
    pub async fn tags(&self, repository: &Repository) -> Result<Vec<String>, RegistryError> {
        self.run("list the tags of", repository, self.deadlines.call, async {
            let mut all = Vec::new();
            let mut target = RequestTarget::Path("tags/list?n=1000".to_owned());
            for _ in 0..TAG_PAGES {
                let ask = RegistryRequest {
                    target,
                    ..RegistryRequest::get(repository, String::new())
                };
                let response = self.send(&ask).await?;
                let next = crate::registry::manifests::referrer_list::next_url(&response)?;
                let body = self
                    .http
                    .body(response, MANIFEST_BYTES, "the list of tags", &*self.memory)
                    .await?;
                let page: Tags = json::read(&body).map_err(|error| {
                    RegistryErrorReason::Malformed(format!(
                        "the list of tags cannot be read: {error}"
                    ))
                })?;
                all.extend(page.tags.unwrap_or_default());
                match next {
                    Some(next) if all.len() <= TAGS => target = RequestTarget::Url(next),
                    None if all.len() <= TAGS => return Ok(all),
                    _ => break,
                }
            }
            Err(RegistryErrorReason::TooMany {
                what: "tags of the repository".to_owned(),
                limit: TAGS,
            })
        })
        .await
    }

    pub(in crate::registry) async fn has_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        push: bool,
    ) -> Result<bool, RegistryErrorReason> {
        let ask = RegistryRequest {
            push,
            ..RegistryRequest::head(repository, format!("blobs/{digest}"))
        };
        match self.send(&ask).await {
            Ok(_) => Ok(true),
            Err(RegistryErrorReason::NotFound) => Ok(false),
            Err(reason) => Err(reason),
        }
    }

    pub(in crate::registry) async fn get_raw(
        &self,
        repository: &Repository,
        name: &str,
    ) -> Result<RawManifest, RegistryErrorReason> {
        let read = self.get_raw_within(repository, name, MANIFEST_BYTES);
        read.await?.ok_or_else(|| RegistryErrorReason::TooLarge {
            what: "the manifest".to_owned(),
            limit: MANIFEST_BYTES,
        })
    }

    /// Returns the manifest if it has at most `limit` bytes, and otherwise `None`. The limit
    /// applies to the manifest, but not to tokens that are requested first.
    pub(in crate::registry) async fn get_raw_within(
        &self,
        repository: &Repository,
        name: &str,
        limit: u64,
    ) -> Result<Option<RawManifest>, RegistryErrorReason> {
        let ask = RegistryRequest::get(repository, format!("manifests/{name}"))
            .accepting(media::ACCEPT_MANIFEST);
        let response = self.send(&ask).await?;
        let media_type = expect_manifest(&response)?;
        // The content must have the requested digest. If `name` is a tag, the content must have the
        // digest in the header of the response.
        let expected = match name.parse::<Digest>() {
            Ok(digest) => Some(digest),
            Err(_) => declared_digest(&response)?,
        };
        let bytes = match self
            .http
            .body(response, limit, "the manifest", &*self.memory)
            .await
        {
            Ok(bytes) => bytes,
            Err(RegistryErrorReason::TooLarge { .. }) => return Ok(None),
            Err(reason) => return Err(reason),
        };
        let found = Digest::of(&bytes);
        match expected {
            Some(expected) if expected != found => {
                Err(RegistryErrorReason::DigestMismatch { expected, found })
            }
            _ => Ok(Some(RawManifest {
                digest: found,
                media_type,
                bytes,
            })),
        }
    }

    /// Writes a manifest under a tag or its digest. Compares the digest that the registry returns.
    /// If the manifest has a subject and the registry has no referrers API, adds the manifest to
    /// the list under the fallback tag.
    pub(in crate::registry) async fn put_manifest(
        &self,
        repository: &Repository,
        name: &str,
        manifest: &RawManifest,
    ) -> Result<ManifestStored, RegistryErrorReason> {
        if manifest.bytes.len() as u64 > MANIFEST_BYTES {
            return Err(RegistryErrorReason::TooLarge {
                what: "the manifest".to_owned(),
                limit: MANIFEST_BYTES,
            });
        }
        let parsed = manifest.parse().map_err(|why| {
            RegistryErrorReason::Malformed(format!("the manifest is invalid: {why}"))
        })?;
        let ask = RegistryRequest {
            method: Method::PUT,
            content: Some((&manifest.media_type, manifest.bytes.clone())),
            ..RegistryRequest::get(repository, format!("manifests/{name}")).writing()
        };
        let response = self.send(&ask).await?;
        if let Some(found) = declared_digest(&response)?
            && found != manifest.digest
        {
            return Err(RegistryErrorReason::DigestMismatch {
                expected: manifest.digest.clone(),
                found,
            });
        }
        let list = match parsed.subject() {
            Some(subject) if !response.headers().contains_key("oci-subject") => {
                let entry = Descriptor {
                    artifact_type: parsed.artifact_type().map(str::to_owned),
                    annotations: parsed.annotations().clone(),
                    ..manifest.descriptor()
                };
                Some(
                    self.add_to_list(repository, &subject.digest, &entry)
                        .await?,
                )
            }
            _ => None,
        };
        Ok(ManifestStored {
            digest: manifest.digest.clone(),
            list,
        })
    }
}

fn named(repository: &Repository, name: &str) -> String {
    let separator = if name.contains(':') { '@' } else { ':' };
    format!("{repository}{separator}{name}")
}
