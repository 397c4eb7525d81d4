//! Layouts on the local disk: folders and archives. The content of a layout is untrusted.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::json;
use bundle_core::reference::{Digest, Reference};
use bytes::Bytes;

use super::names::{CONTAINERD_NAME, ImageSelector};
use crate::archive::Archive;
use crate::attached::{is_attachment_tag, subject_of_tag};
use crate::blob::{Blob, FilePart, changed_content};
use crate::layout;
use crate::limits::{MANIFEST_BYTES, format_size};
use crate::manifest::{Descriptor, RawIndex, RawManifest};
use crate::media;

/// Maximum total size of the manifests that are read to find referrers, in bytes.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;

/// A layout on the local disk.
#[derive(Debug)]
pub struct DiskLayout {
    shape: LayoutKind,
    entries: Vec<Descriptor>,
    referrers: OnceLock<BTreeMap<Digest, Vec<Descriptor>>>,
}

#[derive(Debug)]
enum LayoutKind {
    Folder(PathBuf),
    Archive(Archive),
}

/// An image in the index of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedImage {
    /// Descriptor of the manifest or index of the image.
    pub descriptor: Descriptor,
    /// Name of the image in the layout.
    pub name: Option<String>,
}

impl NamedImage {
    /// Returns the original reference, if the layout contains this reference.
    pub fn origin(&self) -> Option<Reference> {
        let annotated = self.descriptor.annotations.get(CONTAINERD_NAME);
        [annotated, self.name.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|text| text.parse().ok())
    }
}

impl fmt::Display for NamedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.descriptor.digest),
        }
    }
}

impl DiskLayout {
    /// Opens a folder or an archive. Reads `index.json`. For an archive, also reads the headers of
    /// its entries.
    pub fn open(path: &Path) -> Result<Self, Finding> {
        let shape = if path.is_dir() {
            LayoutKind::Folder(path.to_owned())
        } else {
            LayoutKind::Archive(Archive::open(path)?)
        };
        let mut disk = Self {
            shape,
            entries: Vec::new(),
            referrers: OnceLock::new(),
        };
        if disk.part(layout::LAYOUT_FILE)?.is_none() {
            return Err(disk.bad("it has no file `oci-layout`"));
        }
        disk.entries = disk
            .index()?
            .descriptors()
            .filter(|entry| is_document(&entry.media_type))
            .collect();
        Ok(disk)
    }

    /// Returns the path of the folder or file.
    pub fn path(&self) -> &Path {
        match &self.shape {
            LayoutKind::Folder(path) => path,
            LayoutKind::Archive(archive) => archive.path(),
        }
    }

    /// Returns the images of the layout that have a name. If no image has a name, returns all
    /// manifests that are not referrers. Signatures and other attachments are excluded.
    pub fn images(&self) -> Result<Vec<NamedImage>, Finding> {
        let all = self.entries.iter().map(|entry| NamedImage {
            descriptor: entry.clone(),
            name: entry.annotations.get(layout::NAME).cloned(),
        });
        let (named, unnamed): (Vec<_>, Vec<_>) = all
            .filter(|one| !one.name.as_deref().is_some_and(is_attachment_tag))
            .partition(|one| one.name.is_some());
        if !named.is_empty() || unnamed.len() < 2 {
            return Ok(if named.is_empty() { unnamed } else { named });
        }
        let referring = self.referring()?;
        let refers = |digest: &Digest| {
            let mut all = referring.values().flatten();
            all.any(|one| one.digest == *digest)
        };
        Ok(unnamed
            .into_iter()
            .filter(|one| !refers(&one.descriptor.digest))
            .collect())
    }

    /// Returns the selected image. Returns an error if several images match.
    pub fn image(&self, pick: &ImageSelector) -> Result<NamedImage, Finding> {
        let images = self.images()?;
        let listed = || -> String {
            let shown = images.iter().take(8).map(ToString::to_string);
            shown.collect::<Vec<_>>().join(", ")
        };
        let found: Vec<_> = images
            .iter()
            .filter(|one| match pick {
                ImageSelector::Only => true,
                ImageSelector::Name(name) => {
                    one.name.as_ref() == Some(name)
                        || one.origin().is_some_and(|origin| {
                            origin.to_string() == *name || origin.tag() == Some(name)
                        })
                }
                ImageSelector::Digest(digest) => one.descriptor.digest == *digest,
            })
            .collect();
        let first = found.first().copied();
        match first {
            Some(one)
                if found
                    .iter()
                    .all(|other| other.descriptor.digest == one.descriptor.digest) =>
            {
                Ok(one.clone())
            }
            // A manifest below an index, or a referrer, can be selected by its digest.
            None if let ImageSelector::Digest(digest) = pick => {
                let raw = self.raw(digest)?.ok_or_else(|| self.missing_blob(digest))?;
                Ok(NamedImage {
                    descriptor: raw.descriptor(),
                    name: None,
                })
            }
            None if images.is_empty() => Err(self.bad("it contains no image")),
            None => Err(self.bad(&format!("it contains no image {pick}, only {}", listed()))),
            Some(_) => Err(self
                .bad(&format!("it contains {} images; select one", found.len()))
                .hint(format!(
                    "select one with {path}:NAME or {path}@DIGEST, of {}",
                    listed(),
                    path = self.path().display()
                ))),
        }
    }

    /// Returns the manifest or index of a descriptor. `None` if the layout does not contain it, for
    /// example because only selected platforms of an index were copied.
    pub fn manifest(&self, descriptor: &Descriptor) -> Result<Option<RawManifest>, Finding> {
        let name = layout::blob_path(&descriptor.digest);
        let Some((part, size)) = self.part(&name)? else {
            return Ok(None);
        };
        if size != descriptor.size {
            return Err(changed_content(
                &descriptor.digest,
                &sizes(size, descriptor.size),
            ));
        }
        let bytes = self.checked(&name, &descriptor.digest, &part, size)?;
        let raw = RawManifest::new(Some(&descriptor.media_type), bytes);
        raw.map(Some)
            .map_err(|why| self.bad(&format!("{} is invalid: {why}", descriptor.digest)))
    }

    /// Returns the manifest or index with this digest. The media type comes from `index.json`. If
    /// `index.json` does not list the digest, the media type comes from the document.
    pub fn raw(&self, digest: &Digest) -> Result<Option<RawManifest>, Finding> {
        let name = layout::blob_path(digest);
        let Some((part, size)) = self.part(&name)? else {
            return Ok(None);
        };
        let bytes = self.checked(&name, digest, &part, size)?;
        let entry = self.entries.iter().find(|entry| entry.digest == *digest);
        RawManifest::new(entry.map(|one| one.media_type.as_str()), bytes)
            .map(Some)
            .map_err(|why| self.bad(&format!("{digest} is invalid: {why}")))
    }

    /// Returns the blob of a descriptor. Only its size is checked. The caller has to check the
    /// digest.
    pub fn blob(&self, descriptor: &Descriptor) -> Result<Blob, Finding> {
        match self.part(&layout::blob_path(&descriptor.digest))? {
            Some((part, size)) if size == descriptor.size => {
                Ok(Blob::file(descriptor.clone(), part))
            }
            Some((_, size)) => Err(changed_content(
                &descriptor.digest,
                &sizes(size, descriptor.size),
            )),
            None => Err(self.missing_blob(&descriptor.digest)),
        }
    }

    /// Returns the finding for missing content.
    pub(super) fn missing_blob(&self, digest: &Digest) -> Finding {
        self.bad(&format!("the blob {digest} is missing"))
    }

    /// Returns the referrers of `subject`, in the order of the index.
    pub fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>, Finding> {
        Ok(self.referring()?.get(subject).cloned().unwrap_or_default())
    }

    /// Returns the manifest under a tag such as `sha256-….sig`. Returns `None` if the layout does
    /// not contain the tag.
    pub fn tagged(&self, tag: &str) -> Result<Option<RawManifest>, Finding> {
        let entry = self.entries.iter().find(|entry| {
            let name = entry.annotations.get(layout::NAME);
            name.is_some_and(|name| name == tag || name.ends_with(&format!(":{tag}")))
        });
        match entry {
            Some(entry) => self.manifest(entry),
            None => Ok(None),
        }
    }

    /// Returns `true` if the layout has content with this digest.
    pub(super) fn holds(&self, digest: &Digest) -> Result<bool, Finding> {
        Ok(self.part(&layout::blob_path(digest))?.is_some())
    }

    /// Returns `index.json` of the layout, including unknown entries, for writers that add entries.
    pub(super) fn index(&self) -> Result<RawIndex, Finding> {
        let Some((part, size)) = self.part(layout::INDEX)? else {
            return Err(self.bad("it has no file `index.json`"));
        };
        let bytes = self.read(layout::INDEX, &part, size)?;
        json::read(&bytes)
            .map_err(|error| self.bad(&format!("index.json is not an index: {error}")))
    }

    fn referring(&self) -> Result<&BTreeMap<Digest, Vec<Descriptor>>, Finding> {
        if let Some(known) = self.referrers.get() {
            return Ok(known);
        }
        let found = self.read_referrers()?;
        Ok(self.referrers.get_or_init(|| found))
    }

    /// Returns the referrers by subject. Reads every document that the index lists, because only
    /// the documents contain the subject.
    fn read_referrers(&self) -> Result<BTreeMap<Digest, Vec<Descriptor>>, Finding> {
        let mut found: BTreeMap<Digest, Vec<Descriptor>> = BTreeMap::new();
        let mut searched = 0;
        let mut add = |subject: Digest, entry: Descriptor| {
            let listed = found.entry(subject).or_default();
            if listed.iter().all(|other| other.digest != entry.digest) {
                listed.push(entry);
            }
        };
        for entry in &self.entries {
            searched += entry.size;
            if searched > MAX_SEARCHED_BYTES {
                return Err(Finding::error(
                    codes::registry::TOO_LARGE,
                    format!(
                        "the manifests of `{}` exceed {}",
                        self.path().display(),
                        format_size(MAX_SEARCHED_BYTES)
                    ),
                ));
            }
            let Some(raw) = self.manifest(entry)? else {
                continue;
            };
            // The entry is a list of referrers under its fallback tag, which some tools store in
            // layouts.
            let listed_for = entry
                .annotations
                .get(layout::NAME)
                .and_then(|name| subject_of_tag(name));
            if let Some((subject, "")) = listed_for {
                let index: Option<RawIndex> = json::read(&raw.bytes).ok();
                for one in index.iter().flat_map(RawIndex::descriptors) {
                    add(subject.clone(), one);
                }
                continue;
            }
            // An invalid document is ignored here. A later read of this document returns the error.
            let Ok(parsed) = raw.parse() else {
                continue;
            };
            if let Some(subject) = parsed.subject() {
                let described = Descriptor {
                    artifact_type: parsed.artifact_type().map(str::to_owned),
                    annotations: parsed.annotations().clone(),
                    ..raw.descriptor()
                };
                add(subject.digest.clone(), described);
            }
        }
        Ok(found)
    }

    /// Returns the file called `name` and its size in bytes. `None` if the layout does not contain
    /// it. Only regular files are accepted.
    fn part(&self, name: &str) -> Result<Option<(FilePart, u64)>, Finding> {
        match &self.shape {
            LayoutKind::Archive(archive) => Ok(archive.part(name)),
            LayoutKind::Folder(folder) => {
                let path = folder.join(name);
                match fs_err::symlink_metadata(&path) {
                    Ok(found) if found.is_file() => Ok(Some((FilePart::new(path, 0), found.len()))),
                    Ok(_) => Err(self.bad(&format!("`{name}` is not a regular file"))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(self.bad(&error.to_string())),
                }
            }
        }
    }

    fn checked(
        &self,
        name: &str,
        digest: &Digest,
        part: &FilePart,
        size: u64,
    ) -> Result<Bytes, Finding> {
        let bytes = self.read(name, part, size)?;
        let found = Digest::of(&bytes);
        if found == *digest {
            Ok(bytes)
        } else {
            Err(changed_content(digest, &found.to_string())
                .about(self.path().display().to_string()))
        }
    }

    fn read(&self, name: &str, part: &FilePart, size: u64) -> Result<Bytes, Finding> {
        if size > MANIFEST_BYTES {
            return Err(Finding::error(
                codes::registry::TOO_LARGE,
                format!(
                    "`{name}` of `{}` has {}, and the limit for a manifest is {}",
                    self.path().display(),
                    format_size(size),
                    format_size(MANIFEST_BYTES)
                ),
            ));
        }
        let mut bytes = Vec::new();
        fs_err::File::open(part.path())
            .and_then(|mut file| {
                file.seek(SeekFrom::Start(part.offset()))?;
                file.take(size).read_to_end(&mut bytes)
            })
            .map_err(|error| self.bad(&error.to_string()))?;
        Ok(bytes.into())
    }

    fn bad(&self, why: &str) -> Finding {
        let what = match self.shape {
            LayoutKind::Folder(_) => "layout",
            LayoutKind::Archive(_) => "archive",
        };
        Finding::error(
            codes::registry::BAD_LAYOUT,
            format!("`{}` is not a valid OCI {what}: {why}", self.path().display()),
        )
        .hint("create a layout or archive with `kubectl bundle build --to FOLDER` or `kubectl bundle pull --to FOLDER|FILE.tar`")
    }
}

fn is_document(media_type: &str) -> bool {
    media::is_manifest(media_type) || media::is_index(media_type)
}

fn sizes(found: u64, named: u64) -> String {
    format!("it has {found} bytes instead of {named}")
}
