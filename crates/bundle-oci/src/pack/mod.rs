//! Packs files into an OCI image. The build is reproducible: the same files and the same package
//! produce the same bytes on every machine.

mod archive;
mod base;
mod gzip;
mod layer;
mod plan;
mod resource;

use std::collections::BTreeMap;
use std::io::Read as _;

use bundle_core::diagnostic::Findings;
use bundle_core::format::Files;
use bundle_core::package::{Package, annotations};
use bundle_core::reference::Digest;

use crate::blob::Blob;
use crate::limits::{Limits, MANIFEST_BYTES};
use crate::manifest::Manifest;
use crate::unpack::{UnpackError, Unpacker};
pub use archive::{EntryError, TarWriter};
pub use base::BaseImage;
pub use plan::{ImagePlan, SourceDate};
pub use resource::Resource;

/// A whole image in the form that is stored in a layout or pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedImage {
    /// Manifest.
    pub manifest: Manifest,
    /// Digest of the manifest: the identity of the bundle.
    pub digest: Digest,
    /// Image configuration.
    pub config: Blob,
    /// Layers, lowest first.
    pub layers: Vec<Blob>,
}

impl PackedImage {
    /// Returns the total size of the image, in bytes.
    pub fn size(&self) -> u64 {
        let blobs: u64 = self.blobs().map(|blob| blob.descriptor.size).sum();
        blobs + self.manifest.bytes.len() as u64
    }

    /// Returns all blobs except the manifest, in the order in which the blobs are written.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.layers.iter().chain(std::iter::once(&self.config))
    }

    /// Returns the unpacked files of the content, without the files of resources. The image is
    /// handled as untrusted.
    pub fn files(&self, limits: Limits) -> Result<Files, UnpackError> {
        content(&self.config, &self.layers, limits)
    }
}

/// Returns the files in these layers, without the files of resources.
fn content(config: &Blob, layers: &[Blob], limits: Limits) -> Result<Files, UnpackError> {
    let unreadable = |blob: &Blob, error: std::io::Error| UnpackError::Malformed {
        what: blob.descriptor.digest.to_string(),
        why: error.to_string(),
    };
    let mut bytes = Vec::new();
    config
        .reader()
        .and_then(|reader| reader.take(MANIFEST_BYTES).read_to_end(&mut bytes))
        .map_err(|error| unreadable(config, error))?;
    let named: Vec<_> = layers
        .iter()
        .map(|layer| layer.descriptor.clone())
        .collect();
    let mut unpacking = Unpacker::new(&config.descriptor, &bytes, &named, limits)?;
    for (index, layer) in layers.iter().enumerate() {
        if unpacking.wants(index) {
            let reader = layer.reader().map_err(|error| unreadable(layer, error))?;
            unpacking.layer(index, reader)?;
        }
    }
    Ok(unpacking.finish())
}

/// Packs a bundle: all of `files` in one layer, and the metadata of `package` in the manifest's
/// annotations.
pub fn pack(files: &Files, package: &Package) -> Result<PackedImage, Findings> {
    image(files, annotations(package))
}

/// Packs `files` into an image with these annotations.
pub fn image(
    files: &Files,
    annotations: BTreeMap<String, String>,
) -> Result<PackedImage, Findings> {
    let plan = ImagePlan {
        files: Some(files),
        annotations,
        ..ImagePlan::default()
    };
    plan.pack()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media;

    fn files(paths: &[&str]) -> Files {
        paths
            .iter()
            .map(|path| ((*path).to_owned(), format!("# {path}\n").into_bytes()))
            .collect()
    }

    fn example() -> PackedImage {
        let annotations = BTreeMap::from([(
            "org.opencontainers.image.title".to_owned(),
            "web".to_owned(),
        )]);
        let mut files = files(&["bundle.yaml", "manifests/a.yaml"]);
        // The text is long enough to contain every type of deflate block.
        let text = (0..8000_u64).map(|i| format!("k{i}: {}\n", i * i % 10_007));
        let text: String = text.collect();
        files.insert("manifests/b.yaml".to_owned(), text.into_bytes());
        image(&files, annotations).unwrap()
    }

    /// A change of the compressor, the tar headers or the fields of a document changes this digest
    /// and all published digests.
    #[test]
    fn golden_digest_is_stable() {
        let packed = example();
        assert_eq!(
            packed.layers[0].descriptor.digest.as_str(),
            "sha256:7efbd5bb828c8c25372ae7153ebc28dab433d94e99d91a65bb632c63823dc78f"
        );
        assert_eq!(
            packed.digest.as_str(),
            "sha256:053a10d622dd8646c747c19c2a8e5f2816bde8d365e2b51b940bbc2a0ca24671"
        );
    }

    #[test]
    fn digest_does_not_depend_on_the_order_of_files() {
        let forwards = image(&files(&["a", "m-n/x", "m/x", "m/y"]), BTreeMap::new());
        let backwards = image(&files(&["m/y", "m/x", "m-n/x", "a"]), BTreeMap::new());
        assert_eq!(forwards.unwrap().digest, backwards.unwrap().digest);
    }

    #[test]
    fn packed_files_unpack_unchanged() {
        let mut expected = files(&["bundle.yaml", "manifests/a.yaml"]);
        let long = format!("manifests/{}/{}.yaml", "d".repeat(80), "n".repeat(90));
        expected.insert(long, vec![7; 100_000]);
        expected.insert("manifests/empty.yaml".to_owned(), Vec::new());
        let packed = image(&expected, BTreeMap::new()).unwrap();
        assert_eq!(packed.files(Limits::default()).unwrap(), expected);
        let read = Manifest::parse(packed.manifest.bytes.clone(), Some(media::MANIFEST)).unwrap();
        assert_eq!(read, packed.manifest);
    }

    #[test]
    fn rejects_paths_that_unpacking_rejects() {
        for (path, why) in [
            ("/etc/passwd", "absolute"),
            ("../up", "`..`"),
            ("a//b", "empty component"),
            ("", "no name"),
        ] {
            let findings = image(&files(&[path]), BTreeMap::new()).unwrap_err();
            assert!(findings.to_string().contains(why), "{findings}");
        }
        let findings = image(&files(&[&"n".repeat(300)]), BTreeMap::new()).unwrap_err();
        assert!(findings.to_string().contains("too long"), "{findings}");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn repacked_content_is_the_same_image(
            files in proptest::collection::btree_map(
                "[a-z]{1,8}/[a-zA-Z0-9é_.-]{1,60}x",
                proptest::collection::vec(proptest::num::u8::ANY, 0..2000),
                0..8,
            )
        ) {
            let first = image(&files, BTreeMap::new()).unwrap();
            let again = first.files(Limits::default()).unwrap();
            proptest::prop_assert_eq!(&again, &files);
            proptest::prop_assert_eq!(image(&again, BTreeMap::new()).unwrap().digest, first.digest);
        }
    }
}
