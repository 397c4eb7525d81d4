//! Signatures of cosign 2. They are layers of the image under the tag `sha256-….sig`. The
//! annotations of a layer contain signature, certificate and log entry.

use std::collections::BTreeMap;

use bundle_core::policy::RawSignature;
use bundle_core::reference::{Digest, PinnedReference};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::attached::legacy_tag;
use crate::blob::Blob;
use crate::limits::{MANIFEST_BYTES, REFERRERS, SIGNATURE_BYTES};
use crate::manifest::{Descriptor, Manifest, ManifestDocument, RawManifest};
use crate::media;
use crate::registry::manifests::referrers::MAX_CONCURRENT_REQUESTS;
use crate::registry::manifests::signature_budget::{SignatureLocation, SignatureSlot};
use crate::registry::manifests::tag_conflict::wait_after_write;
use crate::registry::retry::MAX_TAG_WRITES;
use crate::registry::transport::RegistryRequest;
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository, SignatureStored};

/// Suffix of the tag under which cosign 2 stores signatures.
const SIGNATURES: &str = "sig";
/// Suffix of the tag under which cosign 2 stores attestations.
const ATTESTATIONS: &str = "att";

impl Client {
    /// Returns the signatures under the tag `.sig` and the attestations under the tag `.att`,
    /// without their content. A list is empty if its tag does not exist.
    pub(in crate::registry) async fn cosign_locations(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<[SignatureLocation; 2], RegistryErrorReason> {
        let (signatures, attestations) = futures::try_join!(
            self.cosign_manifest(repository, subject, SIGNATURES),
            self.cosign_manifest(repository, subject, ATTESTATIONS),
        )?;
        let of = |manifest: Option<Manifest>, media_type: &'static str| {
            let layers = manifest.map(|manifest| manifest.layers);
            let layers = layers.into_iter().flatten();
            SignatureLocation::of(layers.filter(|layer| layer.media_type == media_type))
        };
        Ok([
            of(signatures, media::SIMPLE_SIGNING),
            of(attestations, media::DSSE_ENVELOPE),
        ])
    }

    /// Adds a layer to the image under cosign 2's tag. The layer is the payload, and `annotations`
    /// contain its signature.
    pub async fn push_legacy_signature(
        &self,
        pinned: &PinnedReference,
        payload: Vec<u8>,
        annotations: BTreeMap<String, String>,
    ) -> Result<SignatureStored, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        let origin = self.origin();
        self.run("sign", pinned, self.deadlines.call, async {
            if payload.len() as u64 > SIGNATURE_BYTES {
                return Err(RegistryErrorReason::TooLarge {
                    what: "the signature".to_owned(),
                    limit: SIGNATURE_BYTES,
                });
            }
            // This request fails if the subject does not exist.
            origin.get_raw(repository, pinned.digest().as_str()).await?;
            let mut layer = Blob::new(media::SIMPLE_SIGNING, payload);
            layer.descriptor.annotations = annotations;
            origin.put_blob(repository, &layer, None).await?;
            origin
                .add_layer(repository, pinned.digest(), &layer.descriptor)
                .await
        })
        .await
    }

    /// Adds a layer to the image under the tag `sha256-….sig` of `subject`.
    async fn add_layer(
        &self,
        repository: &Repository,
        subject: &Digest,
        layer: &Descriptor,
    ) -> Result<SignatureStored, RegistryErrorReason> {
        let tag = legacy_tag(subject, SIGNATURES);
        for attempt in 0..=MAX_TAG_WRITES {
            let there = self
                .cosign_manifest(repository, subject, SIGNATURES)
                .await?;
            if let Some(manifest) = there.as_ref().filter(|it| it.layers.contains(layer)) {
                return Ok(SignatureStored {
                    digest: manifest.digest.clone(),
                    tag: Some(tag),
                });
            }
            if attempt == MAX_TAG_WRITES {
                break;
            }
            let (mut layers, annotations) = there
                .map(|manifest| (manifest.layers, manifest.annotations))
                .unwrap_or_default();
            if layers.len() >= REFERRERS {
                return Err(RegistryErrorReason::TooMany {
                    what: format!("signatures under {tag}"),
                    limit: REFERRERS,
                });
            }
            layers.push(layer.clone());
            let config = Blob::new(media::CONFIG, config(&layers));
            self.put_blob(repository, &config, None).await?;
            let mut document = ManifestDocument::new(config.descriptor.clone(), layers);
            document.annotations = annotations;
            let manifest = RawManifest::from(&Manifest::from_document(&document));
            self.put_manifest(repository, &tag, &manifest).await?;
            wait_after_write(&manifest.digest, attempt).await;
        }
        Err(RegistryErrorReason::SignatureLost { tag })
    }

    /// Returns the manifest under the tag `sha256-HEX.KIND` of `subject`. Returns `None` if the tag
    /// does not exist.
    async fn cosign_manifest(
        &self,
        repository: &Repository,
        subject: &Digest,
        kind: &str,
    ) -> Result<Option<Manifest>, RegistryErrorReason> {
        let tag = legacy_tag(subject, kind);
        let ask = RegistryRequest::get(repository, format!("manifests/{tag}"))
            .accepting(media::ACCEPT_MANIFEST);
        let response = match self.send(&ask).await {
            Ok(response) => response,
            Err(RegistryErrorReason::NotFound) => return Ok(None),
            Err(reason) => return Err(reason),
        };
        let media_type = crate::registry::manifests::read::media_type(&response);
        let body = self
            .http
            .body(
                response,
                MANIFEST_BYTES,
                "the signatures under the tag",
                &*self.memory,
            )
            .await?;
        Manifest::parse(body, Some(&media_type))
            .map(Some)
            .map_err(|why| {
                RegistryErrorReason::Malformed(format!(
                    "the manifest under the `.{kind}` tag is invalid: {why}"
                ))
            })
    }

    /// Returns one signature for each slot, in order. Downloads the layers that are to be read.
    pub(in crate::registry) async fn layers(
        &self,
        repository: &Repository,
        slots: Vec<SignatureSlot>,
    ) -> Result<Vec<RawSignature>, RegistryErrorReason> {
        stream::iter(slots)
            .map(|slot| async move {
                match slot {
                    SignatureSlot::ToRead(layer) => self.layer(repository, layer).await,
                    SignatureSlot::Skipped(signature) => Ok(signature),
                }
            })
            .buffered(MAX_CONCURRENT_REQUESTS)
            .try_collect()
            .await
    }

    async fn layer(
        &self,
        repository: &Repository,
        layer: Descriptor,
    ) -> Result<RawSignature, RegistryErrorReason> {
        let bytes = self
            .get_blob(repository, &layer, SIGNATURE_BYTES, "a signature")
            .await?;
        Ok(RawSignature {
            bytes: bytes.to_vec(),
            artifact_type: layer.media_type,
            annotations: layer.annotations,
            unread: None,
        })
    }
}

/// Returns the configuration of an image with these layers. The configuration has one `diff_id` and
/// one history entry for each layer, because cosign compares the three numbers when it adds a
/// layer.
fn config(layers: &[Descriptor]) -> String {
    let digests: Vec<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
    let created = "0001-01-01T00:00:00Z";
    let history = serde_json::json!({ "created": created });
    serde_json::json!({
        "architecture": "",
        "created": created,
        "history": vec![history; layers.len()],
        "os": "",
        "rootfs": { "type": "layers", "diff_ids": digests },
        "config": {},
    })
    .to_string()
}
