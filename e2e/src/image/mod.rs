//! Container images of static programs: one layer with the program, without a distribution. The
//! same files produce the same bytes on every machine.

mod bill;
mod busybox;
mod external;
mod layout;
mod platform;
mod provenance;
mod publish;
mod webhook;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::blob::Blob;
use bundle_oci::manifest::Manifest;
use bundle_oci::media;
use bundle_oci::pack::PackedImage;
use bundle_oci::registry::{Client, ClientOptions, TagPolicy};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use tar::{EntryType, Header};

use crate::registry::Registry;

pub use bill::BillOfMaterials;
pub(crate) use bill::{LinkedPackage, linked_packages};
pub(crate) use busybox::push_busybox;
pub use external::ExternalPrograms;
pub use layout::ImageSet;
pub use platform::Platform;
pub use provenance::Provenance;
pub use publish::{Attestations, publish};
pub use webhook::{StaticBuild, WebhookImage, build_webhook};
pub(crate) use webhook::{add_target, path_flags};

/// Content of one path of an image.
#[derive(Debug, Clone)]
pub(crate) enum ImageEntry {
    /// Executable file with the content of the file at this path.
    Program(PathBuf),
    /// File with the content of the file at this path.
    File(PathBuf),
    /// File with these bytes.
    Bytes(Vec<u8>),
    /// Symbolic link.
    Link(String),
}

/// Input of an image.
#[derive(Debug, Clone)]
pub(crate) struct ImagePlan {
    /// Content by path, without a leading `/`.
    pub(crate) entries: BTreeMap<String, ImageEntry>,
    pub(crate) platform: Platform,
    /// `config` of the image configuration: entry point, user, labels.
    pub(crate) config: Value,
    /// Annotations of the manifest.
    pub(crate) annotations: BTreeMap<String, String>,
}

impl ImagePlan {
    /// Packs the image. All files belong to root and have the time 0.
    pub(crate) fn pack(&self) -> Result<PackedImage> {
        let archive = self.archive()?;
        let diff_id = bundle_core::reference::Digest::of(&archive);
        // The operating system in the header must not depend on the operating system of this
        // machine.
        let mut gzip = GzBuilder::new()
            .operating_system(255)
            .write(Vec::new(), Compression::new(6));
        gzip.write_all(&archive)?;
        let layer = Blob::new(media::LAYER_GZIP, gzip.finish()?);
        let config = json!({
            "architecture": self.platform.architecture(),
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": [diff_id.to_string()] },
        });
        let config = Blob::new(media::CONFIG, sorted(config));
        let descriptor = |blob: &Blob| {
            json!({
                "mediaType": blob.descriptor.media_type,
                "digest": blob.descriptor.digest.to_string(),
                "size": blob.descriptor.size,
            })
        };
        let document = json!({
            "schemaVersion": 2,
            "mediaType": media::MANIFEST,
            "config": descriptor(&config),
            "layers": [descriptor(&layer)],
            "annotations": self.annotations,
        });
        let manifest = Manifest::parse(sorted(document).into(), Some(media::MANIFEST))
            .map_err(|why| anyhow!("cannot write the manifest of an image: {why}"))?;
        Ok(PackedImage {
            digest: manifest.digest.clone(),
            manifest,
            config,
            layers: vec![layer],
        })
    }

    fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut folders = Vec::new();
        for (path, entry) in &self.entries {
            for (index, _) in path.match_indices('/') {
                let folder = &path[..=index];
                if !folders.contains(&folder) {
                    folders.push(folder);
                    let header = header(EntryType::Directory, 0o755, 0);
                    append(&mut archive, header, folder, &[])?;
                }
            }
            match entry {
                ImageEntry::Program(file) => {
                    append_file(&mut archive, path, 0o755, &fs_err::read(file)?)?;
                }
                ImageEntry::File(file) => {
                    append_file(&mut archive, path, 0o644, &fs_err::read(file)?)?;
                }
                ImageEntry::Bytes(bytes) => append_file(&mut archive, path, 0o644, bytes)?,
                ImageEntry::Link(target) => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    header.set_link_name(target)?;
                    append(&mut archive, header, path, &[])?;
                }
            }
        }
        archive.into_inner().context("cannot pack a layer")
    }
}

/// Pushes `packed` to `repository:tag` of a registry of the harness, and returns its reference with
/// the digest.
pub async fn push(
    registry: &Registry,
    packed: &PackedImage,
    name: &str,
) -> Result<PinnedReference> {
    let client = Client::new(ClientOptions {
        ca_files: registry.ca().map(PathBuf::from).into_iter().collect(),
        ..ClientOptions::default()
    })?;
    let reference: Reference = registry
        .reference(name)
        .parse()
        .with_context(|| format!("`{name}` is no name of an image"))?;
    let pushed = client.push(packed, &reference, TagPolicy::Move).await?;
    Ok(pushed.pinned)
}

/// Returns a header of the root user and the time 0.
pub(crate) fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

fn append_file(
    archive: &mut tar::Builder<Vec<u8>>,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> Result<()> {
    let header = header(EntryType::Regular, mode, bytes.len() as u64);
    append(archive, header, path, bytes)
}

/// Adds an entry to an archive.
pub(crate) fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    mut header: Header,
    path: &str,
    bytes: &[u8],
) -> Result<()> {
    header.set_path(path)?;
    header.set_cksum();
    archive.append(&header, bytes)?;
    Ok(())
}

/// Returns the document with sorted keys in all objects. The sort is necessary because any crate
/// can enable a feature of serde_json that keeps keys in the order of insertion.
pub(crate) fn sort(mut document: Value) -> Value {
    document.sort_all_objects();
    document
}

/// Returns the sorted document as JSON.
pub(crate) fn sorted(document: Value) -> Vec<u8> {
    sort(document).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(folder: &std::path::Path) -> ImagePlan {
        let program = folder.join("program");
        fs_err::write(&program, "#!/bin/true\n").unwrap();
        ImagePlan {
            entries: BTreeMap::from([
                (
                    "bin/program".to_owned(),
                    ImageEntry::Program(program.clone()),
                ),
                (
                    "bin/other".to_owned(),
                    ImageEntry::Link("program".to_owned()),
                ),
                ("etc/a/b".to_owned(), ImageEntry::File(program)),
            ]),
            platform: Platform::Arm64,
            config: json!({ "User": "65532:65532", "Entrypoint": ["/bin/program"] }),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn image_has_each_folder_once_and_modes_of_programs() {
        let folder = tempfile::tempdir().unwrap();
        let archive = plan(folder.path()).archive().unwrap();
        let mut archive = tar::Archive::new(archive.as_slice());
        let entries: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let mode = entry.header().mode().unwrap();
                format!("{mode:o} {}", entry.path().unwrap().display())
            })
            .collect();
        assert_eq!(
            entries,
            [
                "755 bin/",
                "777 bin/other",
                "755 bin/program",
                "755 etc/",
                "755 etc/a/",
                "644 etc/a/b"
            ]
        );
    }

    #[test]
    fn same_files_have_the_same_digest() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let packed = plan(one.path()).pack().unwrap();
        assert_eq!(packed.digest, plan(other.path()).pack().unwrap().digest);
        let config: Value = serde_json::from_reader(packed.config.reader().unwrap()).unwrap();
        assert_eq!(config["architecture"], "arm64");
    }
}
