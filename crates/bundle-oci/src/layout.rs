//! OCI image layouts in a folder. If a write fails, no partial layout remains. A layout that is
//! read is untrusted.

use std::io::Read;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::json;
use bundle_core::reference::Digest;
use bytes::Bytes;

use crate::blob::{Blob, BlobContent};
use crate::limits::{Limits, MANIFEST_BYTES, format_size};
use crate::manifest::{Descriptor, Manifest, RawIndex, write as document};
use crate::media;
use crate::pack::PackedImage;

/// File that marks a folder as a layout. The specification fixes its content.
pub(crate) const LAYOUT_FILE: &str = "oci-layout";
pub(crate) const MARK_CONTENT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
pub(crate) const INDEX: &str = "index.json";
/// Folder of the blobs.
pub(crate) const BLOBS: &str = "blobs/sha256";
/// Annotation with the name of an image in a layout.
pub(crate) const NAME: &str = "org.opencontainers.image.ref.name";

/// Returns the path of a blob in a layout.
pub(crate) fn blob_path(digest: &Digest) -> String {
    format!("{BLOBS}/{}", digest.hex())
}

/// Writes `packed` as a layout at `folder`, under `name` (usually the tag) if `name` is set.
///
/// An existing layout is replaced atomically. Returns an error if the folder exists, is not empty,
/// and is not a layout.
pub fn write(folder: &Path, packed: &PackedImage, name: Option<&str>) -> Result<(), Finding> {
    if fs_err::symlink_metadata(folder).is_ok() && !replaceable(folder) {
        return Err(Finding::error(
            codes::usage::FILE_UNWRITABLE,
            format!(
                "cannot write the OCI layout `{}`: the path exists and is not an OCI layout",
                folder.display()
            ),
        )
        .hint("choose a folder that does not exist; nothing was overwritten"));
    }
    put(folder, packed, name).map_err(|error| {
        Finding::error(
            codes::usage::FILE_UNWRITABLE,
            format!(
                "cannot write the OCI layout `{}`: {error}",
                folder.display()
            ),
        )
        .hint("no partial files remain")
    })
}

fn replaceable(folder: &Path) -> bool {
    is_layout(folder) || is_empty(folder)
}

/// Returns `true` if `folder` is an empty folder.
pub(crate) fn is_empty(folder: &Path) -> bool {
    fs_err::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

fn put(folder: &Path, packed: &PackedImage, name: Option<&str>) -> std::io::Result<()> {
    // A rename is atomic only within one file system, so the new folder is created next to the
    // target.
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs_err::create_dir_all(parent)?;
    let growing = tempfile::Builder::new()
        .prefix(".kubectl-bundle-")
        .tempdir_in(parent)?;
    let new = growing.path().join("new");
    let blobs = new.join("blobs/sha256");
    fs_err::create_dir_all(&blobs)?;
    for blob in packed.blobs() {
        let mut file = fs_err::File::create(blobs.join(blob.descriptor.digest.hex()))?;
        std::io::copy(&mut blob.reader()?, &mut file)?;
    }
    fs_err::write(blobs.join(packed.digest.hex()), &packed.manifest.bytes)?;
    let mut descriptor = packed.manifest.descriptor();
    if let Some(name) = name {
        descriptor
            .annotations
            .insert(NAME.to_owned(), name.to_owned());
    }
    let mut index = RawIndex::empty();
    index.manifests.push(serde_json::to_value(&descriptor)?);
    fs_err::write(new.join(INDEX), document(&index))?;
    fs_err::write(new.join(LAYOUT_FILE), MARK_CONTENT)?;
    if fs_err::symlink_metadata(folder).is_ok() {
        let old = growing.path().join("old");
        fs_err::rename(folder, &old)?;
        if let Err(error) = fs_err::rename(&new, folder) {
            fs_err::rename(&old, folder)?;
            return Err(error);
        }
        Ok(())
    } else {
        fs_err::rename(&new, folder)
    }
}

/// Image read from a layout.
#[derive(Debug, Clone)]
pub struct LayoutImage {
    /// Image.
    pub packed: PackedImage,
    /// Name of the image in the layout.
    pub name: Option<String>,
}

/// Returns `true` if `folder` has the marker file of an OCI layout.
pub fn is_layout(folder: &Path) -> bool {
    folder.join(LAYOUT_FILE).is_file()
}

/// Reads a layout with a single image. Checks the digest and the size of every blob.
pub fn read(folder: &Path, limits: &Limits) -> Result<LayoutImage, Finding> {
    let layout = Layout { folder };
    if !is_layout(folder) {
        return Err(layout.bad("it has no file `oci-layout`"));
    }
    let index = layout.file(&folder.join(INDEX), MANIFEST_BYTES)?;
    let index: RawIndex = json::read(&index)
        .map_err(|error| layout.bad(&format!("index.json is not an index: {error}")))?;
    let images: Vec<_> = index
        .descriptors()
        .filter(|entry| media::is_manifest(&entry.media_type))
        .collect();
    let [entry] = images.as_slice() else {
        return Err(layout.bad(&format!("it contains {} images; select one", images.len())));
    };
    let bytes = layout.blob(entry, MANIFEST_BYTES)?;
    let manifest = Manifest::parse(bytes, Some(&entry.media_type))
        .map_err(|why| layout.bad(&format!("its manifest is invalid: {why}")))?;
    let config = layout.take(&manifest.config, MANIFEST_BYTES)?;
    if manifest.layers.len() > limits.layers {
        return Err(layout.bad(&format!(
            "its image has {} layers, and the limit is {}",
            manifest.layers.len(),
            limits.layers
        )));
    }
    let layers = manifest
        .layers
        .iter()
        .map(|layer| layout.take(layer, limits.layer))
        .collect::<Result<_, _>>()?;
    Ok(LayoutImage {
        packed: PackedImage {
            digest: manifest.digest.clone(),
            manifest,
            config,
            layers,
        },
        name: entry.annotations.get(NAME).cloned(),
    })
}

struct Layout<'a> {
    folder: &'a Path,
}

impl Layout<'_> {
    fn bad(&self, why: &str) -> Finding {
        Finding::error(
            codes::registry::BAD_LAYOUT,
            format!(
                "`{}` is not a valid OCI layout: {why}",
                self.folder.display()
            ),
        )
        .hint("create a layout with `kubectl bundle build --to FOLDER`")
    }

    fn file(&self, path: &PathBuf, limit: u64) -> Result<Bytes, Finding> {
        let mut bytes = Vec::new();
        fs_err::File::open(path)
            .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
            .map_err(|error| self.bad(&error.to_string()))?;
        if bytes.len() as u64 > limit {
            return Err(Finding::error(
                codes::registry::TOO_LARGE,
                format!("`{}` is larger than {}", path.display(), format_size(limit)),
            ));
        }
        Ok(bytes.into())
    }

    fn blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes, Finding> {
        let path = self
            .folder
            .join("blobs/sha256")
            .join(descriptor.digest.hex());
        let bytes = self.file(&path, limit)?;
        let found = Digest::of(&bytes);
        if found != descriptor.digest || bytes.len() as u64 != descriptor.size {
            return Err(Finding::error(
                codes::registry::DIGEST_MISMATCH,
                format!(
                    "`{}` has {} bytes with digest {found}, expected {} bytes with digest {}",
                    path.display(),
                    bytes.len(),
                    descriptor.size,
                    descriptor.digest
                ),
            )
            .hint("build or pull it again"));
        }
        Ok(bytes)
    }

    fn take(&self, descriptor: &Descriptor, limit: u64) -> Result<Blob, Finding> {
        Ok(Blob {
            content: BlobContent::Memory(self.blob(descriptor, limit)?),
            descriptor: descriptor.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bundle_core::format::Files;

    use super::*;
    use crate::pack::image;

    fn packed(text: &str) -> PackedImage {
        let files = Files::from([("manifests/a.yaml".to_owned(), text.into())]);
        image(&files, BTreeMap::new()).unwrap()
    }

    #[test]
    fn layout_is_read_back_and_replaced_completely() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("deep/web.oci");
        for text in ["one", "two"] {
            write(&folder, &packed(text), Some("1.4.0")).unwrap();
            let laid = read(&folder, &Limits::default()).unwrap();
            assert_eq!(laid.packed, packed(text));
            assert_eq!(laid.name.as_deref(), Some("1.4.0"));
        }
        let left = fs_err::read_dir(folder.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "nothing else is left behind");
        let blobs = fs_err::read_dir(folder.join("blobs/sha256")).unwrap();
        assert_eq!(blobs.count(), 3, "nor anything of the first");
    }

    #[test]
    fn rejects_folders_that_are_not_layouts() {
        let root = tempfile::tempdir().unwrap();
        fs_err::write(root.path().join("thesis.txt"), "x").unwrap();
        let finding = write(root.path(), &packed("a"), None).unwrap_err();
        assert_eq!(finding.code, codes::usage::FILE_UNWRITABLE);
        assert!(root.path().join("thesis.txt").exists());
    }

    #[test]
    fn rejects_changed_blobs() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("web");
        let packed = packed("a");
        write(&folder, &packed, None).unwrap();
        let layer = &packed.layers[0].descriptor;
        let path = folder.join("blobs/sha256").join(layer.digest.hex());
        fs_err::write(&path, "other").unwrap();
        let finding = read(&folder, &Limits::default()).unwrap_err();
        assert_eq!(finding.code, codes::registry::DIGEST_MISMATCH);
        fs_err::remove_file(&path).unwrap();
        let finding = read(&folder, &Limits::default()).unwrap_err();
        assert_eq!(finding.code, codes::registry::BAD_LAYOUT);
    }
}
