//! Base image of a bundle. The layers of the base image are kept byte for byte.

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::reference::Digest;
use serde_json::Value;

use super::content;
use crate::blob::{Blob, BlobContent};
use crate::limits::Limits;
use crate::manifest::Manifest;
use crate::media;
use crate::unpack::{UnpackError, Unpacker};

/// Base image of a bundle. New layers are added above its layers.
#[derive(Debug, Clone)]
pub struct BaseImage {
    /// Reference of the image. `None` if other users cannot resolve the reference.
    pub(super) name: Option<String>,
    pub(super) digest: Digest,
    pub(super) config: Value,
    pub(super) layers: Vec<Blob>,
    /// Original configuration of the image. It is needed to unpack the files of the image.
    original_config: Blob,
}

impl BaseImage {
    /// Returns the base image with this manifest, this configuration and these layers, the lowest
    /// layer first. The caller has checked the digests. This function checks the types of the
    /// layers, and that layers and configuration match.
    pub fn new(
        name: Option<String>,
        manifest: &Manifest,
        config_bytes: &[u8],
        layers: Vec<Blob>,
    ) -> Result<Self, Finding> {
        let unusable = |why: &str| unusable(&manifest.digest, why);
        Unpacker::new(
            &manifest.config,
            config_bytes,
            &manifest.layers,
            Limits::default(),
        )
        .map_err(|error: UnpackError| unusable(&error.to_string()))?;
        let named = manifest.layers.iter().map(|layer| &layer.digest);
        if !named.eq(layers.iter().map(|layer| &layer.descriptor.digest)) {
            return Err(unusable("its layers differ from those in its manifest"));
        }
        let config: Value = serde_json::from_slice(config_bytes)
            .map_err(|error| unusable(&format!("its configuration is not JSON: {error}")))?;
        let layers = layers.into_iter().map(|mut layer| {
            // Replaces the media type of Docker, because an OCI manifest must name layers with OCI
            // media types. The bytes of the layer stay the same.
            if layer.descriptor.media_type == media::DOCKER_LAYER_GZIP {
                media::LAYER_GZIP.clone_into(&mut layer.descriptor.media_type);
            }
            layer
        });
        Ok(Self {
            name,
            digest: manifest.digest.clone(),
            config,
            layers: layers.collect(),
            original_config: Blob {
                descriptor: manifest.config.clone(),
                content: BlobContent::Memory(config_bytes.to_vec().into()),
            },
        })
    }

    /// Returns the unpacked files of the image, as untrusted content.
    pub fn files(&self, limits: Limits) -> Result<Files, UnpackError> {
        content(&self.original_config, &self.layers, limits)
    }

    pub(super) fn unusable(&self, why: &str) -> Finding {
        unusable(&self.digest, why)
    }
}

fn unusable(digest: &Digest, why: &str) -> Finding {
    Finding::error(
        codes::registry::MALFORMED,
        format!("the image {digest} cannot be used as a base: {why}"),
    )
    .hint("pass an image with tar or tar+gzip layers, such as another bundle")
}
