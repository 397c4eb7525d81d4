//! cosign's older form: signatures as the layers of an image under the tag `sha256-….sig`, each with its signature and evidence in annotations.
//! Not here: whether one is any good (bundle_trust), and referrers (referrers).

use std::collections::BTreeMap;

use bundle_core::policy::{RawSignature, Unread};
use bundle_core::reference::Digest;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::transport::Ask;
use super::{Client, Reason, Repository};
use crate::limits::{MANIFEST_BYTES, REFERRERS, SIGNATURE_BYTES};
use crate::manifest::{Descriptor, Manifest};
use crate::media;

/// Requests under way at once while layers are read.
const AT_ONCE: usize = 8;

impl Client {
    /// The signatures under the tag, of which at most `most` are read. None where there is no such tag.
    pub(super) async fn legacy_signatures(
        &self,
        repository: &Repository,
        subject: &Digest,
        most: usize,
    ) -> Result<Vec<RawSignature>, Reason> {
        let Some(manifest) = self.legacy_manifest(repository, subject).await? else {
            return Ok(Vec::new());
        };
        let layers = manifest.layers.into_iter();
        let layers = layers.filter(|layer| layer.media_type == media::SIMPLE_SIGNING);
        stream::iter(layers.enumerate())
            .map(|(index, layer)| self.layer(repository, layer, index < most))
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// The image under the tag; `None` where there is none.
    async fn legacy_manifest(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<Option<Manifest>, Reason> {
        let ask = Ask::get(repository, format!("manifests/{}", legacy_tag(subject)))
            .accepting(media::ACCEPT_MANIFEST);
        let response = match self.send(&ask).await {
            Ok(response) => response,
            Err(Reason::NotFound) => return Ok(None),
            Err(reason) => return Err(reason),
        };
        let media_type = super::read::media_type(&response);
        let body = self
            .pools
            .body(response, MANIFEST_BYTES, "the signatures under the tag")
            .await?;
        Manifest::parse(body, Some(&media_type))
            .map(Some)
            .map_err(|why| Reason::Malformed(format!("the `.sig` tag cannot be used: {why}")))
    }

    /// One layer, read if it is wanted and no larger than a signature may be.
    pub(super) async fn layer(
        &self,
        repository: &Repository,
        layer: Descriptor,
        wanted: bool,
    ) -> Result<RawSignature, Reason> {
        if !wanted {
            return Ok(unread(
                layer.media_type,
                Unread::Beyond { limit: REFERRERS },
            ));
        }
        if layer.size > SIGNATURE_BYTES {
            let (bytes, limit) = (layer.size, SIGNATURE_BYTES);
            return Ok(unread(layer.media_type, Unread::TooLarge { bytes, limit }));
        }
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

/// A signature that was left where it is.
pub(super) fn unread(artifact_type: String, why: Unread) -> RawSignature {
    RawSignature {
        bytes: Vec::new(),
        artifact_type,
        annotations: BTreeMap::new(),
        unread: Some(why),
    }
}

/// The tag that holds the signatures of a digest.
fn legacy_tag(subject: &Digest) -> String {
    format!("sha256-{}.sig", subject.hex())
}
