//! The cache: unpacked content on disk, keyed by `ContentId`. A `ContentId` contains the digest,
//! the source and the pull secret. The digest alone gives no access to content that was fetched
//! from another source or with another pull secret. A copy that is damaged or has no valid seal
//! counts as missing, and is fetched again. The content of one `ContentId` can have several
//! rendered copies: one for each combination of facts that rendering depends on
//! (`bundle_core::format::RenderDependencies`).

mod eviction;
mod usage;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bundle_core::cancellation::Cancellation;
use bundle_core::content::ContentId;
use bundle_core::format::Content;
use bundle_core::format::helm::RenderedApis;
use bundle_core::reference::Digest;

use self::eviction::NewCopy;
use self::usage::CacheUsage;
use crate::budget::requester_key;
use crate::reconcile::content::archive::{self, StoredArchive};
use crate::reconcile::content::rendered::{self, RenderedContent, SelectedObjects};
use crate::reconcile::content::sealed_file::{FinishedFile, SealedFileWriter, ValidSeal};
use crate::reconcile::content::stored::{self, StoredContent, StoredFile, Summary};
use crate::telemetry::metrics::{CacheLookup, CacheMetrics};

/// Age at which an unfinished file counts as abandoned.
const ABANDONED_AGE: Duration = Duration::from_secs(3600);
/// Minimum number of bytes that a copy counts towards the limits. Therefore the cache limit also
/// limits the number of files: 512 MiB allow 8,192 files.
const MIN_COPY_BYTES: u64 = 64 << 10;

/// Returns the name that the seal of a copy covers in addition to the index. The name identifies
/// digest, source and pull secret, so that the copy is not returned for another source or another
/// pull secret.
fn seal_name(content: &ContentId) -> String {
    format!("{} {}", content.digest(), content.scope())
}

/// Returns the name that the seal of a rendered copy covers. The name identifies the content, the
/// facts that rendering depends on, and the version of this program.
fn rendered_seal_name(content: &ContentId, rendered_for: &Digest) -> String {
    let (name, version) = (seal_name(content), env!("CARGO_PKG_VERSION"));
    format!("{name} {rendered_for} {version}")
}

/// The cache folder with all copies.
pub(in crate::reconcile) struct Store {
    folder: PathBuf,
    /// Maximum size of all copies together, in bytes.
    limit: u64,
    /// The requester of each copy that was written since the process started.
    owners: Mutex<HashMap<PathBuf, String>>,
    /// Digests of the content of existing Bundles, and of recorded content. The periodic sweep
    /// updates this set.
    needed: Mutex<BTreeSet<String>>,
    usage: Mutex<CacheUsage>,
    metrics: CacheMetrics,
}

/// A complete copy in the cache.
struct CachedCopy {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    kind: CopyKind,
}

impl CachedCopy {
    /// Returns the number of bytes that the copy counts towards the limits.
    fn counted_bytes(&self) -> u64 {
        counted_bytes(self.bytes)
    }
}

/// Returns the number of bytes that a copy of `bytes` bytes counts towards the limits.
fn counted_bytes(bytes: u64) -> u64 {
    bytes.max(MIN_COPY_BYTES)
}

/// Kinds of copies, in the order of their removal. The first kind is the easiest to create again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CopyKind {
    /// The archive for downloads.
    Archive,
    /// The rendered objects of content.
    Rendered,
    /// The unpacked files of content.
    Content,
}

impl CopyKind {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "archive" => Some(Self::Archive),
            "content" => Some(Self::Content),
            "rendered" => Some(Self::Rendered),
            _ => None,
        }
    }

    /// Returns the label of this kind in metrics.
    fn label(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Rendered => "rendered",
            Self::Content => "content",
        }
    }
}

impl Store {
    pub(in crate::reconcile) fn new(folder: PathBuf, limit: u64, metrics: CacheMetrics) -> Self {
        metrics.limit(limit);
        let store = Self {
            folder,
            limit,
            owners: Mutex::default(),
            needed: Mutex::default(),
            usage: Mutex::default(),
            metrics,
        };
        // An earlier process wrote these unfinished files.
        store.retain(|name, _| !name.ends_with(".unfinished"));
        store
    }

    fn path(&self, content: &ContentId) -> PathBuf {
        let (hex, scope) = (content.digest().hex(), content.scope());
        self.folder
            .join(format!("{hex}-{}.content", &scope.hex()[..16]))
    }

    fn rendered_path(&self, content: &ContentId, rendered_for: &Digest) -> PathBuf {
        let (hex, scope) = (content.digest().hex(), content.scope());
        let (scope, target) = (&scope.hex()[..16], &rendered_for.hex()[..16]);
        self.folder.join(format!("{hex}-{scope}-{target}.rendered"))
    }

    /// Opens the copy of `content` if its seal was made with `key`. Each file is checked when it is
    /// read.
    pub(in crate::reconcile) fn open(
        &self,
        content: &ContentId,
        key: &[u8],
    ) -> Option<StoredContent> {
        let path = self.path(content);
        let opened = StoredContent::open(&path, &seal_name(content), key);
        self.count_lookup(CopyKind::Content, &opened);
        let stored = match opened {
            Ok(stored) => stored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                let digest = content.digest();
                tracing::warn!(%digest, %error, "ignored a damaged copy in the cache");
                return None;
            }
        };
        // If setting the time of last use fails, the only effect is an earlier removal of the copy.
        stored.touch().ok();
        Some(stored)
    }

    fn archive_path(&self, content: &ContentId) -> PathBuf {
        self.path(content).with_extension("archive")
    }

    /// Opens the archive of `content` if its seal was made with `key`.
    pub(in crate::reconcile) fn open_archive(
        &self,
        content: &ContentId,
        key: &[u8],
    ) -> Option<StoredArchive> {
        let opened = StoredArchive::open(&self.archive_path(content), (&seal_name(content), key));
        self.count_lookup(CopyKind::Archive, &opened);
        let archive = opened.ok()?;
        archive.touch().ok();
        Some(archive)
    }

    /// Writes and opens the archive of `content`. `stored` is the cached copy of this content. To
    /// free space, this function removes other archives, and rendered copies of requesters that
    /// exceed their share.
    pub(in crate::reconcile) fn store_archive(
        &self,
        mut stored: StoredContent,
        content: &ContentId,
        (key, owner): (&[u8], &str),
        cancellation: &Cancellation,
    ) -> io::Result<StoredArchive> {
        let (path, owner) = (self.archive_path(content), &requester_key(owner));
        let name = seal_name(content);
        let finished = archive::write(&mut stored, self.begin()?, (&name, key), cancellation)?;
        self.publish(finished, owner, &path)?;
        // The archive is opened immediately, because storing another archive could remove it.
        let archive = StoredArchive::open(&path, (&name, key));
        lock(&self.owners).insert(path, owner.to_owned());
        archive
    }

    /// Finds the objects with the object keys `keys` in the rendered copy of `content`.
    /// `rendered_for` is the cache key of this copy. Returns `None` if the copy does not exist or
    /// is damaged, or if its seal was not made with `key`.
    pub(in crate::reconcile) fn select(
        &self,
        content: &ContentId,
        rendered_for: &Digest,
        key: &[u8],
        keys: &BTreeSet<String>,
    ) -> Option<SelectedObjects> {
        self.find_rendered(content, rendered_for, key, Some(keys))
    }

    /// Like [`Self::select`], but finds all objects in the rendered copy.
    pub(in crate::reconcile) fn select_all(
        &self,
        content: &ContentId,
        rendered_for: &Digest,
        key: &[u8],
    ) -> Option<SelectedObjects> {
        self.find_rendered(content, rendered_for, key, None)
    }

    fn find_rendered(
        &self,
        content: &ContentId,
        rendered_for: &Digest,
        key: &[u8],
        keys: Option<&BTreeSet<String>>,
    ) -> Option<SelectedObjects> {
        let path = self.rendered_path(content, rendered_for);
        let name = rendered_seal_name(content, rendered_for);
        let found = SelectedObjects::find(&path, (&name, key), keys);
        self.count_lookup(CopyKind::Rendered, &found);
        let selected = match found {
            Ok(selected) => selected,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                let digest = content.digest();
                tracing::warn!(%digest, %error, "ignored a damaged rendered copy in the cache");
                return None;
            }
        };
        selected.touch().ok();
        // The time of last use of the content copy is also set, so that this copy is not removed
        // while its rendered objects are used.
        if let Ok(file) = fs_err::OpenOptions::new()
            .write(true)
            .open(self.path(content))
        {
            file.file().set_modified(SystemTime::now()).ok();
        }
        Some(selected)
    }

    /// Stores the rendered objects of `content` under the cache key `rendered_for`. `apis` are the
    /// API versions for which a chart was rendered. Stores nothing if `existing` is the seal of an
    /// equal copy. To free space, this function removes only archives and other rendered copies.
    pub(in crate::reconcile) fn store_rendered(
        &self,
        (rendered, apis): (&Content, Option<&RenderedApis>),
        (content, rendered_for): (&ContentId, &Digest),
        existing: Option<&ValidSeal>,
        key: &[u8],
        owner: &str,
    ) -> io::Result<()> {
        let path = self.rendered_path(content, rendered_for);
        let name = rendered_seal_name(content, rendered_for);
        let rendering = RenderedContent::new(rendered, apis)?;
        if existing.is_some_and(|seal| rendering.is_sealed_by(seal, &name, key)) {
            return Ok(());
        }
        let owner = &requester_key(owner);
        let finished = rendering.write(self.begin()?, &name, key)?;
        self.publish(finished, owner, &path)?;
        lock(&self.owners).insert(path, owner.to_owned());
        Ok(())
    }

    /// Returns the seal of the rendered copy of `content` with the cache key `rendered_for`.
    /// Returns `None` if this copy does not exist or its seal is invalid. The objects of the copy
    /// are not read.
    pub(in crate::reconcile) fn rendered_seal(
        &self,
        content: &ContentId,
        rendered_for: &Digest,
        key: &[u8],
    ) -> Option<ValidSeal> {
        let path = self.rendered_path(content, rendered_for);
        let name = rendered_seal_name(content, rendered_for);
        rendered::valid_seal(&path, &name, key).ok()
    }

    /// Removes the rendered copy of `content` with the cache key `rendered_for`.
    pub(in crate::reconcile) fn remove_rendered(&self, content: &ContentId, rendered_for: &Digest) {
        let path = self.rendered_path(content, rendered_for);
        fs_err::remove_file(&path).ok();
        lock(&self.owners).remove(&path);
        self.record_size();
    }

    /// Creates an unfinished file for a copy. The copy can be opened after it was stored, for
    /// example with [`Store::store`].
    pub(in crate::reconcile) fn begin(&self) -> io::Result<SealedFileWriter> {
        fs_err::create_dir_all(&self.folder)?;
        SealedFileWriter::create(&self.folder)
    }

    /// Stores a complete copy atomically. To free space, this function first removes copies of this
    /// requester while they exceed the share of one requester, and then copies of all requesters.
    /// Within each of these two groups, copies that no Bundle needs are removed first. Then the
    /// order of [`CopyKind`] and the time of last use decide.
    pub(in crate::reconcile) fn store(
        &self,
        writer: SealedFileWriter,
        files: Vec<StoredFile>,
        summary: Summary,
        content: &ContentId,
        key: &[u8],
        owner: &str,
    ) -> io::Result<()> {
        let (path, owner) = (self.path(content), &requester_key(owner));
        let finished = stored::finish(writer, files, summary, (&seal_name(content), key))?;
        self.publish(finished, owner, &path)?;
        lock(&self.owners).insert(path, owner.to_owned());
        Ok(())
    }

    /// Frees space for a finished copy of `owner`, and renames its file to `path`.
    fn publish(&self, finished: FinishedFile, owner: &str, path: &Path) -> io::Result<()> {
        let bytes = finished.bytes()?;
        self.free_space(bytes, owner, path)?;
        // The lock prevents concurrent calls from counting the same replaced copy twice.
        let mut usage = lock(&self.usage);
        let replaced = fs_err::metadata(path).ok().map(|data| data.len());
        finished.rename(path)?;
        if let Some(kind) = CopyKind::of(path) {
            usage.add(kind, bytes);
            if let Some(replaced) = replaced {
                usage.remove(kind, replaced);
            }
        }
        usage.report(&self.metrics);
        Ok(())
    }

    fn count_lookup<T>(&self, kind: CopyKind, found: &io::Result<T>) {
        let result = match found {
            Ok(_) => CacheLookup::Hit,
            Err(error) if error.kind() == io::ErrorKind::NotFound => CacheLookup::Miss,
            Err(_) => CacheLookup::Damaged,
        };
        self.metrics.looked_up(kind.label(), result);
    }

    /// Lists the folder, and records the number and size of its copies.
    fn record_size(&self) {
        // The lock is held during the list, so that no copy is added between the list and the
        // record.
        let mut usage = lock(&self.usage);
        *usage = CacheUsage::of(&self.copies());
        usage.report(&self.metrics);
    }

    /// Removes copies until the limit allows a new copy of `owner` with this number of bytes at the
    /// path `replaced`. Lists the folder only if the recorded size of the copies exceeds the limit.
    fn free_space(&self, bytes: u64, owner: &str, replaced: &Path) -> io::Result<()> {
        let bytes = counted_bytes(bytes);
        if bytes > self.limit {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!(
                    "the content needs {} MiB, and the limit of the cache is {} MiB",
                    bytes.div_ceil(1 << 20),
                    self.limit >> 20
                ),
            ));
        }
        if lock(&self.usage).counted_bytes() + bytes <= self.limit {
            return Ok(());
        }
        // The lock prevents concurrent calls from removing the same copies.
        let mut owners = lock(&self.owners);
        let mut copies = self.copies();
        copies.retain(|copy| copy.path != replaced);
        let needed = lock(&self.needed).clone();
        copies.sort_by_cached_key(|copy| {
            let is_needed = digest_of(&copy.path).is_some_and(|digest| needed.contains(&digest));
            (is_needed, copy.kind, copy.used)
        });
        let new = NewCopy {
            bytes,
            kind: CopyKind::of(replaced).unwrap_or(CopyKind::Rendered),
            owner,
        };
        let Some(evicted) = eviction::evictions(&copies, &owners, &new, self.limit) else {
            let message = "the cache is full";
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        };
        for copy in evicted {
            match fs_err::remove_file(&copy.path) {
                // Other functions remove copies without this lock, so the copy may be missing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            self.metrics.evicted(copy.kind.label());
            owners.remove(&copy.path);
        }
        self.record_size();
        Ok(())
    }

    fn copies(&self) -> Vec<CachedCopy> {
        let Ok(entries) = fs_err::read_dir(&self.folder) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| {
                let kind = CopyKind::of(&entry.path())?;
                let metadata = entry.metadata().ok()?;
                Some(CachedCopy {
                    path: entry.path(),
                    kind,
                    bytes: metadata.len(),
                    used: metadata.modified().ok()?,
                })
            })
            .collect()
    }

    /// Removes all copies of content with this digest.
    pub(in crate::reconcile) fn remove(&self, digest: &Digest) {
        self.retain(|name, _| !name.starts_with(&format!("{}-", digest.hex())));
    }

    /// Returns the digests of the contents of all copies.
    pub(in crate::reconcile) fn digests(&self) -> BTreeSet<String> {
        let Ok(entries) = fs_err::read_dir(&self.folder) else {
            return BTreeSet::new();
        };
        entries
            .flatten()
            .filter_map(|entry| digest_of(&entry.path()))
            .collect()
    }

    /// Removes each copy of content whose digest is not in `needed`. Also removes abandoned
    /// unfinished files.
    pub(in crate::reconcile) fn sweep(&self, needed: BTreeSet<String>) {
        let now = SystemTime::now();
        self.retain(|name, changed| {
            if name.ends_with(".unfinished") {
                let age = changed.and_then(|changed| now.duration_since(changed).ok());
                return age.is_none_or(|age| age < ABANDONED_AGE);
            }
            digest_of(Path::new(name)).is_some_and(|digest| needed.contains(&digest))
        });
        *lock(&self.needed) = needed;
    }

    /// Removes each file for which `keep` returns false. The arguments of `keep` are the name and
    /// the modification time of the file.
    fn retain(&self, keep: impl Fn(&str, Option<SystemTime>) -> bool) {
        let Ok(entries) = fs_err::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let changed = entry.metadata().ok().and_then(|data| data.modified().ok());
            let name = entry.file_name();
            if !name.to_str().is_some_and(|name| keep(name, changed)) {
                fs_err::remove_file(entry.path()).ok();
                lock(&self.owners).remove(&entry.path());
            }
        }
        self.record_size();
    }
}

/// Returns the digest in the file name of a copy.
fn digest_of(path: &Path) -> Option<String> {
    CopyKind::of(path)?;
    let stem = path.file_stem()?.to_str()?;
    let (hex, _) = stem.split_once('-')?;
    Some(format!("sha256:{hex}"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Each change of the value is one step, so the value is consistent after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod rendered_tests;
#[cfg(test)]
mod tests;
