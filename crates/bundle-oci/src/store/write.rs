//! Writes images to the local disk: adds them to a layout folder, or creates an archive. If a write
//! fails, the layout or archive is not changed.

use std::collections::BTreeMap;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tempfile::{NamedTempFile, TempPath};

use super::names::CONTAINERD_NAME;
use super::write_blob::{unwritable, write_blob};
use super::{CopyPlan, DiskLayout, ManifestRole};
use crate::archive::{ArchivePlan, is_archive};
use crate::attached::is_attachment_tag;
use crate::blob::{Blob, BlobContent};
use crate::layout;
use crate::manifest::{Descriptor, RawIndex, write as document};
use crate::progress::Progress;
use crate::registry::TagPolicy;

/// Maximum number of blobs that are written concurrently.
const AT_ONCE: usize = 4;

/// Result of a write to disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteResult {
    /// Number of new blobs and manifests.
    pub new: usize,
    /// Number of blobs and manifests that existed.
    pub present: usize,
    /// Size of the new blobs, in bytes.
    pub bytes: u64,
    /// `true` if the index changed, because an image got a new name.
    pub named: bool,
}

impl WriteResult {
    /// Returns `true` if nothing changed.
    pub fn is_unchanged(&self) -> bool {
        self.new == 0 && !self.named
    }
}

/// Writes the images of all copy plans as one archive. Replaces an existing archive. Returns an
/// error if the path has any other file.
pub async fn write_archive(
    path: &Path,
    plans: &[CopyPlan],
    progress: &Arc<dyn Progress>,
) -> Result<WriteResult, Finding> {
    let there = fs_err::symlink_metadata(path);
    if there.is_ok() && !is_archive(path) {
        return Err(Finding::error(
            codes::usage::FILE_UNWRITABLE,
            format!("`{}` exists and is not an archive", path.display()),
        )
        .hint("choose a file that does not exist; nothing was overwritten"));
    }
    let unwritable = |error: &io::Error| unwritable("archive", path, error);
    let mut index = RawIndex::empty();
    index.manifests = entries(plans)?;
    let pieces = content_items(plans);
    let sizes = pieces
        .iter()
        .map(|(digest, piece)| (digest.clone(), piece.size()))
        .collect();
    let plan = ArchivePlan::new(document(&index), sizes);
    let temporary = begin(path, &plan).map_err(|error| unwritable(&error))?;
    let total: u64 = pieces.values().map(ContentItem::size).sum();
    progress.expect(total);
    let count = pieces.len();
    let jobs = pieces.into_iter().map(|(digest, piece)| {
        let place = temporary.to_path_buf();
        let offset = plan.offset(&digest).unwrap_or_default();
        async move {
            let blob = piece.blob(progress)?;
            let file = fs_err::OpenOptions::new()
                .write(true)
                .open(place)
                .and_then(|mut file| file.seek(SeekFrom::Start(offset)).map(|_| file))
                .map_err(|error| unwritable(&error))?;
            write_blob(blob, file, progress)
                .await
                .map_err(|error| error.finding("archive", path))
        }
    });
    stream::iter(jobs)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    fs_err::OpenOptions::new()
        .write(true)
        .open(&temporary)
        .and_then(|file| file.sync_all())
        .map_err(|error| unwritable(&error))?;
    temporary
        .persist(path)
        .map_err(|error| unwritable(&error.error))?;
    Ok(WriteResult {
        new: count,
        present: 0,
        bytes: total,
        named: true,
    })
}

fn begin(path: &Path, plan: &ArchivePlan) -> io::Result<TempPath> {
    let parent = parent(path);
    fs_err::create_dir_all(parent)?;
    let file = temporary(parent)?;
    let (file, place) = file.into_parts();
    let mut file = fs_err::File::from_parts(file, place.to_path_buf());
    plan.begin(&mut file)?;
    Ok(place)
}

/// Adds the images of the copy plans to a layout folder. Creates the folder if it is missing.
/// Existing content is not fetched again. `tags` determines if a name can be moved to other
/// content.
pub async fn write_layout(
    folder: &Path,
    plans: &[CopyPlan],
    tags: TagPolicy,
    progress: &Arc<dyn Progress>,
) -> Result<WriteResult, Finding> {
    let unwritable = |error: &io::Error| unwritable("layout", folder, error);
    let is_there = fs_err::symlink_metadata(folder).is_ok();
    if is_there && !layout::is_layout(folder) && !layout::is_empty(folder) {
        return Err(Finding::error(
            codes::usage::FILE_UNWRITABLE,
            format!(
                "cannot write the OCI layout `{}`: the path exists and is not an OCI layout",
                folder.display()
            ),
        )
        .hint("choose a folder that does not exist; nothing was overwritten"));
    }
    let entries = entries(plans)?;
    if is_there && layout::is_layout(folder) {
        // Computes the index first, so that conflicting names are reported before any content is
        // fetched.
        merged_index(folder, &entries, tags)?;
        let mut written = write_blobs(folder, folder, plans, progress).await?;
        written.named = rename_into_index(folder, &entries, tags)?;
        return Ok(written);
    }
    let parent = parent(folder);
    fs_err::create_dir_all(parent).map_err(|error| unwritable(&error))?;
    let growing = tempfile::Builder::new()
        .prefix(".kubectl-bundle-")
        .tempdir_in(parent)
        .map_err(|error| unwritable(&error))?;
    let new = growing.path().join("new");
    let mut written = write_blobs(folder, &new, plans, progress).await?;
    written.named = true;
    let mut index = RawIndex::empty();
    index.manifests = entries;
    fs_err::write(new.join(layout::INDEX), document(&index))
        .and_then(|()| fs_err::write(new.join(layout::LAYOUT_FILE), layout::MARK_CONTENT))
        // `remove_dir` removes only an empty folder, and fails if files were added in the meantime.
        .and_then(|()| {
            if is_there {
                fs_err::remove_dir(folder)?;
            }
            fs_err::rename(&new, folder)
        })
        .map_err(|error| unwritable(&error))?;
    Ok(written)
}

/// Writes every missing blob. Each blob is written to a temporary file, which is renamed when the
/// blob is complete.
async fn write_blobs(
    shown: &Path,
    folder: &Path,
    plans: &[CopyPlan],
    progress: &Arc<dyn Progress>,
) -> Result<WriteResult, Finding> {
    let unwritable = |error: &io::Error| unwritable("layout", shown, error);
    let blobs = folder.join(layout::BLOBS);
    fs_err::create_dir_all(&blobs).map_err(|error| unwritable(&error))?;
    let mut written = WriteResult::default();
    let mut jobs = Vec::new();
    for (digest, piece) in content_items(plans) {
        let place = blobs.join(digest.hex());
        let size = piece.size();
        match fs_err::symlink_metadata(&place) {
            Ok(found) if found.is_file() && found.len() == size => written.present += 1,
            _ => {
                written.new += 1;
                written.bytes += size;
                jobs.push((place, piece));
            }
        }
    }
    progress.expect(written.bytes);
    let jobs = jobs.into_iter().map(|(place, piece)| {
        let blobs = &blobs;
        async move {
            let blob = piece.blob(progress)?;
            let (file, temporary) = temporary(blobs)
                .map_err(|error| unwritable(&error))?
                .into_parts();
            let file = fs_err::File::from_parts(file, place.clone());
            write_blob(blob, file, progress)
                .await
                .map_err(|error| error.finding("layout", shown))?;
            temporary
                .persist(&place)
                .map_err(|error| unwritable(&error.error))
        }
    });
    stream::iter(jobs)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(written)
}

/// Adds the index entries of the images to an existing layout. Returns `true` if the index changed.
fn rename_into_index(
    folder: &Path,
    entries: &[serde_json::Value],
    tags: TagPolicy,
) -> Result<bool, Finding> {
    let unwritable = |error: &io::Error| unwritable("layout", folder, error);
    // Concurrent writers wait for each other, so that no name is lost.
    let lock =
        fs_err::File::open(folder.join(layout::LAYOUT_FILE)).map_err(|error| unwritable(&error))?;
    lock.file().lock().map_err(|error| unwritable(&error))?;
    let Some(index) = merged_index(folder, entries, tags)? else {
        return Ok(false);
    };
    temporary(folder)
        .and_then(|mut file| {
            file.write_all(&document(&index))?;
            file.as_file().sync_all()?;
            file.persist(folder.join(layout::INDEX))
                .map_err(|error| error.error)
        })
        .map_err(|error| unwritable(&error))?;
    Ok(true)
}

/// Returns the index of a layout with these entries; `None` if the index already has all entries.
fn merged_index(
    folder: &Path,
    entries: &[serde_json::Value],
    tags: TagPolicy,
) -> Result<Option<RawIndex>, Finding> {
    let disk = DiskLayout::open(folder)?;
    let mut index = disk.index()?;
    let mut new = false;
    for entry in entries {
        let name = &entry["annotations"][layout::NAME];
        let same_name = |one: &serde_json::Value| one["annotations"][layout::NAME] == *name;
        if index
            .manifests
            .iter()
            .any(|one| one["digest"] == entry["digest"] && same_name(one))
        {
            continue;
        }
        if let Some(name) = name.as_str() {
            let taken = index.manifests.iter().find(|one| same_name(one));
            if let Some(taken) = taken
                && tags == TagPolicy::Keep
            {
                return Err(Finding::error(
                    codes::registry::TAG_TAKEN,
                    format!(
                        "`{name}` refers to other content in `{}`, {}",
                        folder.display(),
                        taken["digest"].as_str().unwrap_or_default()
                    ),
                )
                .hint("use another name, LAYOUT:NAME, or move the name with --overwrite-tag"));
            }
            index.manifests.retain(|one| !same_name(one));
        }
        new = true;
        index.manifests.push(entry.clone());
    }
    Ok(new.then_some(index))
}

/// Returns the index entries of these copy plans: images by name, their attachments and referrers,
/// in a deterministic order.
fn entries(plans: &[CopyPlan]) -> Result<Vec<serde_json::Value>, Finding> {
    let mut named: BTreeMap<(Option<String>, Digest), Descriptor> = BTreeMap::new();
    let mut unnamed: BTreeMap<Digest, Descriptor> = BTreeMap::new();
    let mut taken: BTreeMap<String, Digest> = BTreeMap::new();
    for plan in plans {
        let image = &plan.image;
        let name = image.name.clone();
        if let Some(name) = &name {
            let before = taken.insert(name.clone(), image.root.digest.clone());
            if let Some(before) = before.filter(|before| *before != image.root.digest) {
                return Err(Finding::error(
                    codes::usage::BAD_ARGUMENT,
                    format!(
                        "two images have the name `{name}`: {before} and {}",
                        image.root.digest
                    ),
                )
                .hint("write them to separate files or folders"));
            }
        }
        for node in &plan.graph.nodes {
            let mut entry = node.raw.descriptor();
            let mut called = None;
            if node.raw.digest == image.root.digest && node.role == ManifestRole::Content {
                called.clone_from(&name);
                if let Some(origin) = &image.origin {
                    entry
                        .annotations
                        .insert(CONTAINERD_NAME.to_owned(), origin.to_string());
                }
            } else {
                match &node.role {
                    ManifestRole::Content => continue,
                    ManifestRole::Referrer(_) => {
                        entry = node.list_descriptor.clone();
                        // The annotation contains the name in the source layout, which is not valid
                        // in the new layout.
                        entry.annotations.remove(layout::NAME);
                        entry.annotations.remove(CONTAINERD_NAME);
                        unnamed.insert(entry.digest.clone(), entry);
                        continue;
                    }
                    ManifestRole::Tagged(tag) => {
                        called = Some(attachment_name(name.as_deref(), tag));
                    }
                }
            }
            if let Some(called) = &called {
                entry
                    .annotations
                    .insert(layout::NAME.to_owned(), called.clone());
            }
            named.insert((called, entry.digest.clone()), entry);
        }
    }
    let values = named.into_values().chain(unnamed.into_values());
    values
        .map(|entry| {
            serde_json::to_value(&entry).map_err(|error| {
                Finding::error(
                    codes::registry::MALFORMED,
                    format!("cannot write an index: {error}"),
                )
            })
        })
        .collect()
}

/// Returns the name that an attachment with this tag gets in a layout. `name` is the name of its
/// image. If `name` has the form REGISTRY/REPOSITORY:TAG, the result is REGISTRY/REPOSITORY with
/// the tag of the attachment. Otherwise the result is only the tag.
fn attachment_name(name: Option<&str>, tag: &str) -> String {
    let reference: Option<bundle_core::reference::Reference> =
        name.and_then(|name| name.parse().ok());
    match reference {
        Some(reference) if !is_attachment_tag(reference.tag().unwrap_or_default()) => {
            format!("{}:{tag}", reference.name())
        }
        _ => tag.to_owned(),
    }
}

/// Content to write: a manifest or index, or a blob with its source.
enum ContentItem<'a> {
    Document(&'a super::ManifestNode),
    Blob(&'a super::ImageSource, &'a Descriptor),
}

impl ContentItem<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::Document(node) => node.raw.bytes.len() as u64,
            Self::Blob(_, descriptor) => descriptor.size,
        }
    }

    fn blob(&self, progress: &Arc<dyn Progress>) -> Result<Blob, Finding> {
        match self {
            Self::Document(node) => Ok(Blob {
                descriptor: node.raw.descriptor(),
                content: BlobContent::Memory(node.raw.bytes.clone()),
            }),
            Self::Blob(source, descriptor) => source.watched_blob(descriptor, progress),
        }
    }
}

/// Returns the content of all copy plans, without duplicate digests.
fn content_items(plans: &[CopyPlan]) -> BTreeMap<Digest, ContentItem<'_>> {
    let mut all = BTreeMap::new();
    for plan in plans {
        for (digest, blob) in &plan.graph.blobs {
            all.entry(digest.clone())
                .or_insert(ContentItem::Blob(&plan.image.source, blob));
        }
        for node in &plan.graph.nodes {
            all.insert(node.raw.digest.clone(), ContentItem::Document(node));
        }
    }
    all
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns a temporary file with the usual permissions.
fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".kubectl-bundle-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}
