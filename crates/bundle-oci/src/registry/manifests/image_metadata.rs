//! Metadata of an image for a review. The layers of the image are not pulled.

use std::collections::BTreeMap;

use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::{PinnedReference, Reference};

use crate::manifest::Manifest;
use crate::registry::{Client, RegistryError};

/// Metadata of an image.
#[derive(Debug, Clone)]
pub struct ImageMetadata {
    /// Resolved reference.
    pub pinned: PinnedReference,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
    /// Signatures of the image, or the error of the lookup. The list is empty if signatures were
    /// not requested.
    pub signatures: Result<Vec<RawSignature>, Unavailable>,
}

impl ImageMetadata {
    /// Returns the metadata from a manifest and signatures that the caller has already read. The
    /// caller has checked that the manifest has the digest in `pinned`. The error is one sentence.
    pub fn from_manifest(
        pinned: PinnedReference,
        manifest: Vec<u8>,
        signatures: Vec<RawSignature>,
    ) -> Result<Self, String> {
        let manifest = Manifest::parse(manifest.into(), None)?;
        Ok(Self {
            pinned,
            annotations: manifest.annotations,
            signatures: Ok(signatures),
        })
    }
}

impl Client {
    /// Resolves the reference and reads the manifest. Reads the signatures too if `signatures` is
    /// `true`.
    pub async fn image_metadata(
        &self,
        reference: &Reference,
        signatures: bool,
    ) -> Result<ImageMetadata, RegistryError> {
        let pinned = reference.pin(self.resolve(reference).await?);
        let read_signatures = async {
            if signatures {
                self.signatures(&pinned).await.map_err(Unavailable::from)
            } else {
                Ok(Vec::new())
            }
        };
        let (manifest, signatures) = futures::join!(self.manifest(&pinned), read_signatures);
        Ok(ImageMetadata {
            annotations: manifest?.annotations,
            pinned,
            signatures,
        })
    }
}
