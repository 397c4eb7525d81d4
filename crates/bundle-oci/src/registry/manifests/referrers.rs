//! Referrers of a digest. Reads and writes signatures with the referrers API, or with the list
//! under the fallback tag.

use bundle_core::policy::RawSignature;
use bundle_core::reference::{Digest, PinnedReference};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::Method;

use crate::blob::Blob;
use crate::limits::{
    MANIFEST_BYTES, REFERRER_BYTES, REFERRER_PAGES, REFERRERS, SIGNATURE_BYTES, SIGNATURES_BYTES,
};
use crate::manifest::{Descriptor, Manifest, ManifestDocument, RawIndex, RawManifest, write};
use crate::media;
use crate::registry::manifests::read::media_type;
use crate::registry::manifests::referrer_list::{
    PREDICATE, ReferrerList, SIGNED, expect_list, fallback_tag, has_no_referrers_api, interleave,
    is_web_page, next_url, read_list, read_priority,
};
use crate::registry::manifests::signature_budget::{SignatureBudget, SignatureSlot, share};
use crate::registry::manifests::tag_conflict::wait_after_write;
use crate::registry::retry::MAX_TAG_WRITES;
use crate::registry::transport::{RegistryRequest, RequestTarget};
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository};

/// Maximum number of concurrent requests while referrers or layers are read.
pub(in crate::registry) const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Maximum number of entries that are requested from a list. Of these, only the first [`REFERRERS`]
/// are read, and the others are only counted.
const MAX_LISTED_REFERRERS: usize = 10_000;

/// Annotation with which cosign marks a Sigstore bundle that contains a DSSE envelope.
const CONTENT: (&str, &str) = ("dev.sigstore.bundle.content", "dsse-envelope");

/// Content of a referrer.
#[derive(Debug)]
enum ReferrerContent {
    /// The layers that have a media type of signatures.
    Layers(Vec<Descriptor>),
    /// Size in bytes of a manifest that was too large to read.
    TooLarge(u64),
}

/// Result of storing a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureStored {
    /// Digest of the manifest that contains the signature.
    pub digest: Digest,
    /// Tag under which the signature is listed or stored. `None` if the referrers API lists the
    /// signature.
    pub tag: Option<String>,
}

impl Client {
    /// Returns all signatures of the content, unverified. The signatures of referrers are first,
    /// and the signatures under cosign 2's tag follow. An empty list means that all locations were
    /// read and have no signature. Every failure is an error. At most [`REFERRERS`] signatures are
    /// read, fairly distributed over the locations. Further signatures are in the list without
    /// their bytes.
    pub async fn signatures(
        &self,
        pinned: &PinnedReference,
    ) -> Result<Vec<RawSignature>, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        self.run(
            "read the signatures of",
            pinned,
            self.deadlines.call,
            Box::pin(async move {
                let subject = pinned.digest();
                let (listed, [signatures, attestations]) = futures::try_join!(
                    self.list_all(repository, subject, MAX_LISTED_REFERRERS),
                    self.cosign_locations(repository, subject),
                )?;
                let mut budget = SignatureBudget::new();
                // If the list is incomplete, the number of further entries is unknown. At least one
                // entry is counted.
                budget.add_beyond(usize::from(!listed.is_complete));
                let mut listed = listed.entries;
                // If there are too many entries, not all of them are read. Therefore entries that
                // are probably signatures are sorted first. The sort is stable.
                listed.sort_by_key(read_priority);
                budget.add_beyond(listed.len().saturating_sub(REFERRERS));
                let mut slots: Vec<SignatureSlot> = Vec::new();
                let mut manifests = std::pin::pin!(
                    stream::iter(listed.into_iter().take(REFERRERS))
                        .map(|entry| self.referrer(repository, subject, entry))
                        .buffered(MAX_CONCURRENT_REQUESTS)
                );
                // Handles one manifest at a time, in the order of the list. Layers that exceed the
                // budget are dropped before the next manifest is handled.
                while let Some(held) = manifests.try_next().await? {
                    match held {
                        ReferrerContent::Layers(layers) => {
                            slots.extend(
                                layers.into_iter().filter_map(|layer| budget.decide(layer)),
                            );
                        }
                        ReferrerContent::TooLarge(bytes) => {
                            slots.extend(budget.too_large(bytes, REFERRER_BYTES));
                        }
                    }
                }
                let (slots, rest) = share([budget.into_location(slots), signatures, attestations]);
                let mut found = self.layers(repository, slots).await?;
                found.extend(rest.skipped_signatures());
                Ok(found)
            }),
        )
        .await
    }

    /// Stores a Sigstore bundle with a signature as a referrer of the content. If the registry
    /// already has this Sigstore bundle, nothing changes.
    pub async fn push_signature(
        &self,
        pinned: &PinnedReference,
        bundle: Vec<u8>,
    ) -> Result<SignatureStored, RegistryError> {
        self.push_attestation(pinned, SIGNED, bundle).await
    }

    /// Stores a Sigstore bundle as a referrer of the content. An annotation of its manifest
    /// contains `predicate_type`.
    pub async fn push_attestation(
        &self,
        pinned: &PinnedReference,
        predicate_type: &str,
        bundle: Vec<u8>,
    ) -> Result<SignatureStored, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        let origin = self.origin();
        self.run("sign", pinned, self.deadlines.call, async {
            if bundle.len() as u64 > SIGNATURE_BYTES {
                return Err(RegistryErrorReason::TooLarge {
                    what: "the signature".to_owned(),
                    limit: SIGNATURE_BYTES,
                });
            }
            let subject = origin
                .get_raw(repository, pinned.digest().as_str())
                .await?
                .descriptor();
            let layer = Blob::new(media::SIGSTORE_BUNDLE, bundle);
            let config = Blob::new(media::EMPTY, "{}");
            origin.put_blob(repository, &layer, None).await?;
            origin.put_blob(repository, &config, None).await?;
            let manifest =
                RawManifest::from(&referrer_of(subject, predicate_type, &config, &layer));
            let stored = origin
                .put_manifest(repository, manifest.digest.as_str(), &manifest)
                .await?;
            Ok(SignatureStored {
                digest: stored.digest,
                tag: stored.list,
            })
        })
        .await
    }

    /// Returns the referrers of the API and of the fallback tag. Returns an error for more than
    /// [`REFERRERS`].
    pub(in crate::registry) async fn referrers_of(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<Vec<Descriptor>, RegistryErrorReason> {
        let listed = self.list_all(repository, subject, REFERRERS).await?;
        if !listed.is_complete || listed.entries.len() > REFERRERS {
            return Err(RegistryErrorReason::TooMany {
                what: format!("referrers of {subject}"),
                limit: REFERRERS,
            });
        }
        Ok(listed.entries)
    }

    /// Returns the referrers of the API and of the fallback tag. Both are read, because a registry
    /// may have added the API after the fallback list was written. After `most` entries no further
    /// page is requested.
    async fn list_all(
        &self,
        repository: &Repository,
        subject: &Digest,
        most: usize,
    ) -> Result<ReferrerList, RegistryErrorReason> {
        let (api, list) = futures::try_join!(
            self.list_from_api(repository, subject, most),
            self.list_from_tag(repository, subject),
        )?;
        let mut listed = api.unwrap_or_default();
        let tagged = list.iter().flat_map(RawIndex::descriptors);
        listed.entries = interleave(listed.entries, tagged);
        Ok(listed)
    }

    /// Returns the list of the referrers API. `None` if the registry has no referrers API. For a
    /// missing API, the distribution specification requires status 404. [`has_no_referrers_api`]
    /// and [`is_web_page`] recognize the responses of real registries.
    async fn list_from_api(
        &self,
        repository: &Repository,
        subject: &Digest,
        most: usize,
    ) -> Result<Option<ReferrerList>, RegistryErrorReason> {
        let mut listed = ReferrerList::default();
        let mut memory_left = SIGNATURES_BYTES;
        let mut target = RequestTarget::Path(format!("referrers/{subject}"));
        for page in 0..REFERRER_PAGES {
            let ask = RegistryRequest {
                target: target.clone(),
                ..RegistryRequest::get(repository, String::new()).accepting(media::INDEX)
            };
            let response = match self.send(&ask).await {
                Ok(response) => response,
                Err(reason) if page == 0 && has_no_referrers_api(&reason) => return Ok(None),
                Err(reason) => return Err(reason),
            };
            if page == 0 && is_web_page(&response) {
                return Ok(None);
            }
            let next = next_url(&response)?;
            expect_list(&response)?;
            let index = read_list(&self.list_body(response).await?)?;
            let from = listed.entries.len();
            listed.entries.extend(index.descriptors());
            memory_left = memory_left.saturating_sub(
                listed.entries[from..]
                    .iter()
                    .map(Descriptor::memory_size)
                    .sum(),
            );
            match next {
                None => return Ok(Some(listed)),
                Some(_) if listed.entries.len() > most => return Ok(Some(listed)),
                Some(_) if memory_left == 0 => break,
                Some(next) => target = RequestTarget::Url(next),
            }
        }
        listed.is_complete = false;
        Ok(Some(listed))
    }

    /// Returns the list under the fallback tag `sha256-…`; `None` if the tag does not exist.
    async fn list_from_tag(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<Option<RawIndex>, RegistryErrorReason> {
        let ask = RegistryRequest::get(repository, format!("manifests/{}", fallback_tag(subject)))
            .accepting(media::INDEX);
        let response = match self.send(&ask).await {
            Ok(response) => response,
            Err(RegistryErrorReason::NotFound) => return Ok(None),
            Err(reason) => return Err(reason),
        };
        let expected = expect_list(&response);
        let is_manifest = media::is_manifest(&media_type(&response));
        if !is_manifest {
            expected.clone()?;
        }
        let body = self.list_body(response).await?;
        // GitLab returns the subject for the fallback tag, because it resolves the digest in the
        // tag. The manifests in the subject are not its referrers.
        if Digest::of(&body) == *subject {
            return Ok(None);
        }
        expected?;
        read_list(&body).map(Some)
    }

    async fn list_body(&self, response: reqwest::Response) -> Result<Bytes, RegistryErrorReason> {
        self.http
            .body(
                response,
                MANIFEST_BYTES,
                "the list of referrers",
                &*self.memory,
            )
            .await
    }

    /// Reads the manifest of a referrer, and returns its layers that have a media type of
    /// signatures. The artifact type in the list is ignored, because it does not identify the
    /// referrers that cosign 3 writes.
    async fn referrer(
        &self,
        repository: &Repository,
        subject: &Digest,
        entry: Descriptor,
    ) -> Result<ReferrerContent, RegistryErrorReason> {
        if media::is_index(&entry.media_type) {
            return Ok(ReferrerContent::Layers(Vec::new()));
        }
        let asked = self
            .get_manifest_within(repository, &entry.digest, REFERRER_BYTES)
            .await;
        let manifest = match asked {
            Ok(Some(manifest)) => manifest,
            Ok(None) => {
                return Ok(ReferrerContent::TooLarge(
                    entry.size.max(REFERRER_BYTES + 1),
                ));
            }
            // The referrer was deleted after the list was written.
            Err(RegistryErrorReason::NotFound) => return Ok(ReferrerContent::Layers(Vec::new())),
            Err(reason) => return Err(reason),
        };
        let about_us = manifest
            .subject
            .as_ref()
            .is_some_and(|named| named.digest == *subject);
        if !about_us {
            return Ok(ReferrerContent::Layers(Vec::new()));
        }
        let mut layers = manifest.layers;
        layers.retain(|layer| {
            // cosign 2 can store its signatures as referrers.
            layer.media_type.starts_with(media::SIGSTORE_BUNDLE_PREFIX)
                || layer.media_type == media::SIMPLE_SIGNING
                || layer.media_type == media::DSSE_ENVELOPE
        });
        Ok(ReferrerContent::Layers(layers))
    }

    /// Adds an entry to the list under the fallback tag.
    pub(in crate::registry) async fn add_to_list(
        &self,
        repository: &Repository,
        subject: &Digest,
        referrer: &Descriptor,
    ) -> Result<String, RegistryErrorReason> {
        let tag = fallback_tag(subject);
        let entry = serde_json::to_value(referrer)
            .map_err(|error| RegistryErrorReason::Malformed(error.to_string()))?;
        for attempt in 0..=MAX_TAG_WRITES {
            let mut index = self
                .list_from_tag(repository, subject)
                .await?
                .unwrap_or_else(RawIndex::empty);
            if index.names(&referrer.digest) {
                return Ok(tag);
            }
            if attempt == MAX_TAG_WRITES {
                break;
            }
            index.manifests.push(entry.clone());
            let ask = RegistryRequest {
                method: Method::PUT,
                content: Some((media::INDEX, Bytes::from(write(&index)))),
                ..RegistryRequest::get(repository, format!("manifests/{tag}")).writing()
            };
            self.send(&ask).await?;
            wait_after_write(&referrer.digest, attempt).await;
        }
        Err(RegistryErrorReason::SignatureLost { tag })
    }
}

fn referrer_of(subject: Descriptor, predicate_type: &str, config: &Blob, layer: &Blob) -> Manifest {
    let mut document =
        ManifestDocument::new(config.descriptor.clone(), vec![layer.descriptor.clone()]);
    document.artifact_type = Some(media::SIGSTORE_BUNDLE.to_owned());
    document.subject = Some(subject);
    document.annotations = [CONTENT, (PREDICATE, predicate_type)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    Manifest::from_document(&document)
}
