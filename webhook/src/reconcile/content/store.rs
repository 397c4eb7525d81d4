//! Unpacked content on disk, by its identity: a digest alone gives no access to what others fetched. A copy that is damaged or not ours
//! counts as none; losing all of them loses time only.
//! Beside a content lie its rendered objects, one file for each target that they depend on (`bundle_core::format::RenderDependencies`).
//! Not here: where content comes from (content::reader), how one copy is written and read (content::stored, content::rendered), or what it means
//! (bundle_core::format).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bundle_core::content::ContentId;
use bundle_core::format::Content;
use bundle_core::reference::Digest;

use crate::reconcile::content::rendered::{Rendering, SelectedObjects};
use crate::reconcile::content::sealed_file::SealedFileWriter;
use crate::reconcile::content::stored::{self, StoredContent, StoredFile, Summary};

/// How long an unfinished copy may lie about that nobody seems to write.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The part of the cache that the copies of one requester may take, if others need the rest.
const SHARE: u64 = 2;

/// What the seal of a copy is over, beside its index. What a source would not give under another name, or to somebody else, is not given from here either.
fn seal_name(content: &ContentId) -> String {
    format!("{} {}", content.digest(), content.scope())
}

/// The same for rendered objects: of a content, by what they depend on beside it, and by this version of the program.
fn rendered_seal_name(content: &ContentId, rendered_for: &Digest) -> String {
    let (name, version) = (seal_name(content), env!("CARGO_PKG_VERSION"));
    format!("{name} {rendered_for} {version}")
}

/// The folder with the copies.
pub(in crate::reconcile) struct Store {
    folder: PathBuf,
    /// The most that all copies together may take, in bytes.
    limit: u64,
    /// Who had them written, as far as that was since the start.
    owners: Mutex<HashMap<PathBuf, String>>,
    /// Digests that live Bundles need, as of the last sweep.
    needed: Mutex<BTreeSet<String>>,
}

/// A finished copy.
struct Copy {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    kind: CopyKind,
}

/// Kinds of copies, the ones that are easier to get again first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CopyKind {
    /// Rendered objects.
    Rendered,
    /// The files of a content.
    Content,
}

impl CopyKind {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "content" => Some(Self::Content),
            "rendered" => Some(Self::Rendered),
            _ => None,
        }
    }
}

impl Store {
    pub(in crate::reconcile) fn new(folder: PathBuf, limit: u64) -> Self {
        let store = Self {
            folder,
            limit,
            owners: Mutex::default(),
            needed: Mutex::default(),
        };
        // Whoever wrote those is no more.
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

    /// The copy that was kept of `content`, if its seal is by this key. Each file is checked when it is read.
    pub(in crate::reconcile) fn open(
        &self,
        content: &ContentId,
        key: &[u8],
    ) -> Option<StoredContent> {
        let path = self.path(content);
        let stored = match StoredContent::open(&path, &seal_name(content), key) {
            Ok(stored) => stored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                let digest = content.digest();
                tracing::warn!(%digest, %error, "a copy in the cache is damaged and not used");
                return None;
            }
        };
        // A copy whose time of use cannot be told is the first to go, and nothing else.
        stored.touch().ok();
        Some(stored)
    }

    /// Finds the objects with `keys` in the rendered copy of `content` with this cache key, if there is one with a seal by this key of ours.
    pub(in crate::reconcile) fn select(
        &self,
        content: &ContentId,
        rendered_for: &Digest,
        key: &[u8],
        keys: &BTreeSet<String>,
    ) -> Option<SelectedObjects> {
        let path = self.rendered_path(content, rendered_for);
        let name = rendered_seal_name(content, rendered_for);
        let selected = match SelectedObjects::find(&path, (&name, key), keys) {
            Ok(selected) => selected,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                let digest = content.digest();
                tracing::warn!(%digest, %error, "a rendered copy in the cache is damaged and not used");
                return None;
            }
        };
        selected.touch().ok();
        // Its content is needed as long as its objects are.
        if let Ok(file) = fs_err::OpenOptions::new()
            .write(true)
            .open(self.path(content))
        {
            file.file().set_modified(SystemTime::now()).ok();
        }
        Some(selected)
    }

    /// Keeps the objects that `content` was rendered to, under the cache key `rendered_for`, unless just these are kept already. Only other rendered copies make room for them.
    pub(in crate::reconcile) fn keep_rendered(
        &self,
        rendered: &Content,
        (content, rendered_for): (&ContentId, &Digest),
        key: &[u8],
        owner: &str,
    ) -> io::Result<()> {
        let path = self.rendered_path(content, rendered_for);
        let name = rendered_seal_name(content, rendered_for);
        let rendering = Rendering::new(rendered)?;
        if rendering.is_at(&path, &name, key) {
            return Ok(());
        }
        let finished = rendering.write(self.begin()?, &name, key)?;
        self.make_room(finished.bytes()?, owner, &path)?;
        finished.rename(&path)?;
        lock(&self.owners).insert(path, owner.to_owned());
        Ok(())
    }

    /// Removes the rendered copy of `content` with this cache key.
    pub(in crate::reconcile) fn remove_rendered(&self, content: &ContentId, rendered_for: &Digest) {
        let path = self.rendered_path(content, rendered_for);
        fs_err::remove_file(&path).ok();
        lock(&self.owners).remove(&path);
    }

    /// Begins a copy. It is not there before [`Store::keep`].
    pub(in crate::reconcile) fn begin(&self) -> io::Result<SealedFileWriter> {
        fs_err::create_dir_all(&self.folder)?;
        SealedFileWriter::create(&self.folder)
    }

    /// Keeps a copy that is complete. It appears whole or not at all. Others make room, those that no Bundle needs first, then those of a requester with more
    /// than their share, then those that were not used for longest.
    pub(in crate::reconcile) fn keep(
        &self,
        writer: SealedFileWriter,
        files: Vec<StoredFile>,
        summary: Summary,
        content: &ContentId,
        key: &[u8],
        owner: &str,
    ) -> io::Result<()> {
        let path = self.path(content);
        let finished = stored::finish(writer, files, summary, (&seal_name(content), key))?;
        self.make_room(finished.bytes()?, owner, &path)?;
        finished.rename(&path)?;
        lock(&self.owners).insert(path, owner.to_owned());
        Ok(())
    }

    fn make_room(&self, bytes: u64, owner: &str, replaced: &Path) -> io::Result<()> {
        if bytes > self.limit {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!(
                    "the content has {} MiB, and the cache holds {} MiB",
                    bytes.div_ceil(1 << 20),
                    self.limit >> 20
                ),
            ));
        }
        let mut copies = self.copies();
        copies.retain(|copy| copy.path != replaced);
        let kind = CopyKind::of(replaced).unwrap_or(CopyKind::Rendered);
        let mut owners = lock(&self.owners);
        let needed = lock(&self.needed).clone();
        let owner_of = |copy: &Copy| owners.get(&copy.path).cloned().unwrap_or_default();
        let mut total: u64 = copies.iter().map(|copy| copy.bytes).sum();
        let mut own: u64 = copies
            .iter()
            .filter(|copy| owner_of(copy) == owner)
            .map(|copy| copy.bytes)
            .sum();
        copies.sort_by_key(|copy| {
            let is_needed = digest_of(&copy.path).is_some_and(|digest| needed.contains(&digest));
            (is_needed, copy.kind, copy.used)
        });
        let mut gone = Vec::new();
        for of_owner in [true, false] {
            for copy in &copies {
                let full = total + bytes > self.limit;
                let greedy = own + bytes > self.limit / SHARE;
                let is_own = owner_of(copy) == owner;
                let is_spared = copy.kind > kind || gone.contains(&copy.path);
                if !full || is_spared || (of_owner && !(greedy && is_own)) {
                    continue;
                }
                fs_err::remove_file(&copy.path)?;
                total -= copy.bytes;
                if is_own {
                    own -= copy.bytes;
                }
                gone.push(copy.path.clone());
            }
        }
        for path in gone {
            owners.remove(&path);
        }
        if total + bytes > self.limit {
            let message = "the cache is full of content";
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        Ok(())
    }

    fn copies(&self) -> Vec<Copy> {
        let Ok(entries) = fs_err::read_dir(&self.folder) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| {
                let kind = CopyKind::of(&entry.path())?;
                let metadata = entry.metadata().ok()?;
                Some(Copy {
                    path: entry.path(),
                    kind,
                    bytes: metadata.len(),
                    used: metadata.modified().ok()?,
                })
            })
            .collect()
    }

    /// Removes all copies of `digest`.
    pub(in crate::reconcile) fn remove(&self, digest: &Digest) {
        self.retain(|name, _| !name.starts_with(&format!("{}-", digest.hex())));
    }

    /// Removes every copy whose digest is not among `needed`, and what was left unfinished long ago.
    pub(in crate::reconcile) fn sweep(&self, needed: BTreeSet<String>) {
        let now = SystemTime::now();
        self.retain(|name, changed| {
            if name.ends_with(".unfinished") {
                let age = changed.and_then(|changed| now.duration_since(changed).ok());
                return age.is_none_or(|age| age < ABANDONED);
            }
            digest_of(Path::new(name)).is_some_and(|digest| needed.contains(&digest))
        });
        *lock(&self.needed) = needed;
    }

    /// Removes every file whose name and time of change are not to be kept.
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
    }
}

/// The digest in the name of a copy.
fn digest_of(path: &Path) -> Option<String> {
    CopyKind::of(path)?;
    let stem = path.file_stem()?.to_str()?;
    let (hex, _) = stem.split_once('-')?;
    Some(format!("sha256:{hex}"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What they hold is whole at every moment, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod rendered_tests;
#[cfg(test)]
mod tests;
