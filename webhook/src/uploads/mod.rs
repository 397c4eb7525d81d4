//! Uploaded archives of Bundles on the disk of the leader. An archive is removed when its Bundle is
//! deleted. An archive that was unpacked is also removed when space is needed.

mod name;
pub(crate) mod target;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bundle_core::reference::Digest;
use tempfile::NamedTempFile;

use self::name::UploadName;
use crate::budget::{Cap, Pool, Share, requester_key};
use crate::config::stamp_key::CurrentStampKey;

/// Maximum size of all uploads, in bytes, including uploads in progress. One requester can use half
/// of this space. Two requesters together can use three quarters.
pub(crate) const UPLOADS: u64 = 512 << 20;
/// Space that is reserved in one step, in bytes. The space is reserved in steps, because the size
/// of an upload can be unknown.
const STEP: u64 = 1 << 20;
/// Minimum space that is counted for an upload, in bytes. This minimum limits the number of
/// uploads, whose names are in memory.
const SMALLEST: u64 = 128 << 10;
/// File extension of an upload in progress.
const UNFINISHED: &str = ".unfinished";
/// Length of the hash of a requester in a file name, in characters.
const REQUESTER_HASH: usize = 16;

/// The uploads on the disk of this replica.
pub(crate) struct UploadStore {
    folder: PathBuf,
    key: CurrentStampKey,
    space: Pool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The uploads by uid of the Bundle.
    stored: HashMap<String, StoredUpload>,
    /// Uids of Bundles whose uploads were unpacked. These uploads can be removed when space is
    /// needed.
    unpacked: HashSet<String>,
    /// True after the files of an earlier process were added to `stored`.
    is_read: bool,
}

/// A complete upload.
struct StoredUpload {
    path: PathBuf,
    /// Hash of the user name of the requester.
    requester: String,
    digest: Digest,
    changed: SystemTime,
    _space: Vec<Share>,
}

/// An upload in progress.
pub(crate) struct UnfinishedUpload {
    file: NamedTempFile,
    space: Arc<UploadSpace>,
}

/// The reserved disk space of an upload in progress.
pub(crate) struct UploadSpace {
    requester: String,
    /// The reserved parts of the space. Each part has [`STEP`] bytes.
    shares: Mutex<Vec<Share>>,
}

/// The reason why an upload is not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    /// Other uploads use the space.
    #[error(
        "no space is left for this upload: all uploads together can have {} MiB, and the uploads \
        of one user half of that; delete Bundles whose content was uploaded and not unpacked",
        UPLOADS >> 20
    )]
    Full,
    /// The file of the upload cannot be written.
    #[error("cannot store the upload: {0}")]
    Storage(#[from] io::Error),
}

impl UploadStore {
    /// Creates the store. The folder is read at the first use of the store.
    pub(crate) fn new(folder: PathBuf, key: CurrentStampKey) -> Self {
        Self {
            folder,
            key,
            space: Pool::divided(UPLOADS),
            state: Mutex::default(),
        }
    }

    /// Creates the file of an upload. No space is reserved yet.
    pub(crate) fn begin(&self, requester: &str) -> io::Result<UnfinishedUpload> {
        // Unfinished files of an earlier process are removed before new unfinished files exist.
        drop(self.state());
        fs_err::create_dir_all(&self.folder)?;
        let mut builder = tempfile::Builder::new();
        let file = builder.suffix(UNFINISHED).tempfile_in(&self.folder)?;
        Ok(UnfinishedUpload {
            file,
            space: Arc::new(UploadSpace {
                requester: requester_hash(requester),
                shares: Mutex::default(),
            }),
        })
    }

    /// Reserves space until at least `bytes` bytes are reserved for the upload. If necessary,
    /// removes uploads that were unpacked. Uploads of the same requester are removed first. Uploads
    /// of other requesters are removed only while the requester has less than half of the space.
    pub(crate) fn reserve(&self, space: &UploadSpace, bytes: u64) -> Result<(), UploadError> {
        let mut shares = lock(&space.shares);
        while (shares.len() as u64) * STEP < bytes {
            match self.space.try_take(STEP, self.caps(&space.requester)) {
                Some(share) => shares.push(share),
                None if self.remove_unpacked(&space.requester) => {}
                None => return Err(UploadError::Full),
            }
        }
        Ok(())
    }

    /// Stores an upload for the Bundle with this uid. The upload replaces an earlier upload of the
    /// Bundle.
    pub(crate) fn keep(
        &self,
        upload: UnfinishedUpload,
        uid: &str,
        digest: &Digest,
        bytes: u64,
    ) -> Result<(), UploadError> {
        let UnfinishedUpload { file, space } = upload;
        self.reserve(&space, bytes)?;
        let mut shares = std::mem::take(&mut *lock(&space.shares));
        if let (Some(last), rest @ 1..) = (shares.last_mut(), bytes % STEP) {
            last.reduce(rest.max(SMALLEST));
        }
        let name = UploadName {
            uid: uid.to_owned(),
            requester: space.requester.clone(),
            digest: digest.clone(),
        };
        let Some(file_name) = name.file(self.key.get().bytes()) else {
            let message = format!("{uid:?} is not the uid of an object");
            return Err(io::Error::other(message).into());
        };
        let path = self.folder.join(file_name);
        file.as_file().sync_all()?;
        let mut state = self.state();
        file.persist(&path).map_err(|error| error.error)?;
        let upload = StoredUpload {
            path: path.clone(),
            requester: name.requester,
            digest: name.digest,
            changed: SystemTime::now(),
            _space: shares,
        };
        let replaced = state.stored.insert(name.uid, upload);
        if let Some(replaced) = replaced.filter(|replaced| replaced.path != path) {
            remove_file(&replaced.path);
        }
        Ok(())
    }

    /// Returns the digest of the upload for the Bundle with this uid.
    pub(crate) fn digest(&self, uid: &str) -> Option<Digest> {
        let state = self.state();
        Some(state.stored.get(uid)?.digest.clone())
    }

    /// Opens an upload with this digest. The upload may belong to another Bundle with the same
    /// content. The digest must be from the record of unpacked content or from
    /// [`UploadStore::digest`].
    pub(crate) fn open(&self, digest: &Digest) -> io::Result<Option<File>> {
        let path = {
            let state = self.state();
            let found = state.stored.values().find(|it| it.digest == *digest);
            found.map(|found| found.path.clone())
        };
        match path.map(File::open).transpose() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened,
        }
    }

    /// Records that content with this digest is unpacked for the Bundle with this uid. Removes an
    /// upload with another digest, because that upload arrived too late.
    pub(crate) fn unpacked(&self, uid: &str, digest: &Digest) {
        let mut state = self.state();
        match state.stored.get(uid) {
            Some(upload) if upload.digest == *digest => {
                state.unpacked.insert(uid.to_owned());
            }
            Some(_) => state.remove(uid),
            None => {}
        }
    }

    /// Removes the upload for the Bundle with this uid.
    pub(crate) fn remove(&self, uid: &str) {
        self.state().remove(uid);
    }

    /// Returns the uids of the Bundles with uploads.
    pub(crate) fn uids(&self) -> HashSet<String> {
        self.state().stored.keys().cloned().collect()
    }

    /// Removes one upload that was unpacked, so that `requester` can have more space. Uploads of
    /// `requester` are removed first, the oldest upload first. Uploads of other requesters are
    /// removed only while `requester` has less than half of the space. Returns false if no upload
    /// can be removed.
    fn remove_unpacked(&self, requester: &str) -> bool {
        let is_below_half = self.space.held(requester) + STEP <= self.space.capacity() / 2;
        let mut state = self.state();
        let unpacked = (state.stored.iter()).filter(|(uid, upload)| {
            let is_own = upload.requester == requester;
            state.unpacked.contains(*uid) && (is_own || is_below_half)
        });
        let oldest = unpacked.min_by_key(|(_, upload)| {
            let is_own = upload.requester == requester;
            (Reverse(is_own), upload.changed)
        });
        let Some(uid) = oldest.map(|(uid, _)| uid.clone()) else {
            return false;
        };
        state.remove(&uid);
        true
    }

    fn caps(&self, requester: &str) -> Vec<Cap> {
        vec![Cap::new(requester.to_owned(), self.space.capacity())]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        if !state.is_read {
            state.is_read = true;
            self.read(&mut state);
        }
        state
    }

    /// Adds the uploads of an earlier process, and removes the unfinished files of that process.
    fn read(&self, state: &mut State) {
        let Ok(entries) = fs_err::read_dir(&self.folder) else {
            return;
        };
        let key = self.key.get();
        let mut files = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let found = UploadName::parse(&path, key.bytes()).zip(entry.metadata().ok());
            match found.filter(|(_, data)| data.is_file()) {
                Some((name, data)) => files.push((name, path, data)),
                None => remove_file(&path),
            }
        }
        // The requester with the most bytes comes first, because the limit of a requester depends
        // on the free space.
        let mut bytes_by_requester: HashMap<String, u64> = HashMap::new();
        for (name, _, data) in &files {
            let requester = name.requester.clone();
            *bytes_by_requester.entry(requester).or_default() += data.len().max(SMALLEST);
        }
        files.sort_by_cached_key(|(name, ..)| {
            (
                Reverse(bytes_by_requester.get(&name.requester).copied()),
                name.requester.clone(),
            )
        });
        for (name, path, data) in files {
            let UploadName {
                uid,
                requester,
                digest,
            } = name;
            let size = data.len().max(SMALLEST);
            let space = self.space.try_take(size, self.caps(&requester));
            let Some((space, changed)) = space.zip(data.modified().ok()) else {
                remove_file(&path);
                continue;
            };
            // A Bundle has two uploads if the earlier process ended before it removed the older
            // upload.
            let other = state.stored.get(&uid);
            if other.is_some_and(|other| other.changed > changed) {
                remove_file(&path);
                continue;
            }
            let upload = StoredUpload {
                path,
                requester,
                digest,
                changed,
                _space: vec![space],
            };
            if let Some(other) = state.stored.insert(uid, upload) {
                remove_file(&other.path);
            }
        }
    }
}

impl State {
    fn remove(&mut self, uid: &str) {
        self.unpacked.remove(uid);
        if let Some(upload) = self.stored.remove(uid) {
            remove_file(&upload.path);
        }
    }
}

impl UnfinishedUpload {
    /// Returns a second handle for writing to the file.
    pub(crate) fn writer(&self) -> io::Result<File> {
        self.file.reopen()
    }

    pub(crate) fn space(&self) -> Arc<UploadSpace> {
        self.space.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is complete before a panic can occur.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove_file(path: &Path) {
    if let Err(error) = fs_err::remove_file(path) {
        tracing::warn!(%error, "cannot remove an upload");
    }
}

fn requester_hash(requester: &str) -> String {
    let digest = Digest::of(requester_key(requester).as_bytes());
    digest.hex()[..REQUESTER_HASH].to_owned()
}

#[cfg(test)]
mod tests;
