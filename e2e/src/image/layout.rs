//! Images of one program for several platforms, as an OCI layout with an index of the manifests.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bundle_core::reference::Digest;
use bundle_oci::media;
use bundle_oci::pack::PackedImage;
use serde_json::{Value, json};

use super::{Platform, sorted};

const MARK: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const NAME: &str = "org.opencontainers.image.ref.name";

/// Images of one program, at most one per platform.
#[derive(Debug, Clone)]
pub struct ImageSet {
    images: Vec<(Platform, PackedImage)>,
    index: Vec<u8>,
}

impl ImageSet {
    /// Returns the set of these images, in the order of their platforms.
    pub fn new(mut images: Vec<(Platform, PackedImage)>) -> Self {
        images.sort_by_key(|(platform, _)| *platform);
        let manifests: Vec<Value> = images
            .iter()
            .map(|(platform, image)| {
                json!({
                    "mediaType": media::MANIFEST,
                    "digest": image.digest.to_string(),
                    "size": image.manifest.bytes.len(),
                    "platform": { "architecture": platform.architecture(), "os": "linux" },
                })
            })
            .collect();
        let annotations = images.first().map(|(_, image)| &image.manifest.annotations);
        let index = sorted(json!({
            "schemaVersion": 2,
            "mediaType": media::INDEX,
            "manifests": manifests,
            "annotations": annotations,
        }));
        Self { images, index }
    }

    /// Returns the digest of the index, which identifies the images of all platforms.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.index)
    }

    /// Returns the digest of the image for `platform`.
    pub fn digest_of(&self, platform: Platform) -> Option<&Digest> {
        self.images
            .iter()
            .find_map(|(other, image)| (*other == platform).then_some(&image.digest))
    }

    /// Returns the digests of the index and of each image.
    pub fn digests(&self) -> Vec<Digest> {
        let images = self.images.iter().map(|(_, image)| image.digest.clone());
        std::iter::once(self.digest()).chain(images).collect()
    }

    /// Writes the images as an OCI layout at `folder`, under the name `tag`. Replaces an existing
    /// layout. Returns an error if `folder` has other content.
    pub fn write(&self, folder: &Path, tag: &str) -> Result<()> {
        if folder.exists() && !bundle_oci::layout::is_layout(folder) {
            bail!(
                "`{}` exists and is no OCI layout; nothing was written",
                folder.display()
            );
        }
        let parent = match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs_err::create_dir_all(parent)?;
        let scratch = tempfile::Builder::new()
            .prefix(".image-")
            .tempdir_in(parent)
            .with_context(|| format!("cannot write to `{}`", parent.display()))?;
        let new = scratch.path().join("new");
        let blobs = new.join("blobs").join("sha256");
        fs_err::create_dir_all(&blobs)?;
        for (_, image) in &self.images {
            for blob in image.blobs() {
                let mut file = fs_err::File::create(blobs.join(blob.descriptor.digest.hex()))?;
                std::io::copy(&mut blob.reader()?, &mut file)?;
            }
            fs_err::write(blobs.join(image.digest.hex()), &image.manifest.bytes)?;
        }
        fs_err::write(blobs.join(self.digest().hex()), &self.index)?;
        let index = json!({
            "schemaVersion": 2,
            "mediaType": media::INDEX,
            "manifests": [{
                "mediaType": media::INDEX,
                "digest": self.digest().to_string(),
                "size": self.index.len(),
                "annotations": { NAME: tag },
            }],
        });
        fs_err::write(new.join("index.json"), sorted(index))?;
        fs_err::write(new.join("oci-layout"), MARK)?;
        if folder.exists() {
            fs_err::rename(folder, scratch.path().join("old"))?;
        }
        fs_err::rename(&new, folder)?;
        Ok(())
    }
}
