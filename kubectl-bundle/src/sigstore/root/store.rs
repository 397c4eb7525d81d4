//! Stored data of a TUF repository. The selected repository and its initial root are in the user's
//! configuration folder. The downloaded metadata is in the cache folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sigstore_trust_root::SigstoreInstance;
use sigstore_tuf::{Error, FileStore, MetadataStore};

use crate::failure::{self, Failure, Outcome};
use crate::system::files;

const NAME: &str = "kubectl-bundle";
/// File with the selected repository.
const INSTANCE: &str = "trust.json";
/// File with the time of the last refresh.
const REFRESH_TIME_FILE: &str = "asked.json";
/// Name under which the library sigstore-tuf stores the current root.
const ROOT: &str = "root.json";
/// Prefix of the names under which sigstore-tuf stores each version of the root.
const ROOTS: &str = "root_history/";
/// Name under which sigstore-tuf stores the timestamp metadata.
pub(super) const TIMESTAMP: &str = "timestamp.json";
/// Name under which sigstore-tuf stores the snapshot metadata.
pub(super) const SNAPSHOT: &str = "snapshot.json";
/// Files with valid metadata of rejected refreshes. The first contains a timestamp without a
/// snapshot, and the second contains a timestamp with its snapshot.
const REJECTED_FILES: [&str; 2] = ["refused-timestamp.json", "refused-snapshot.json"];

/// Configuration and cache folders of a user.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    pub(crate) config: PathBuf,
    /// `$XDG_CACHE_HOME`, else `~/.cache`.
    pub(crate) cache: PathBuf,
}

/// A TUF repository and its initial root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instance {
    /// URL.
    pub(crate) mirror: String,
    /// Text of `root.json`.
    pub(crate) root: String,
}

#[derive(Serialize, Deserialize)]
struct RefreshTime {
    at: Timestamp,
}

impl Instance {
    /// Returns the public instance. Its initial root is built in.
    pub(crate) fn public() -> Self {
        let public = SigstoreInstance::PublicGood;
        Self {
            mirror: public.tuf_url().to_owned(),
            root: String::from_utf8_lossy(public.tuf_root()).into_owned(),
        }
    }
}

impl Folders {
    fn instance_file(&self) -> PathBuf {
        self.config.join(NAME).join(INSTANCE)
    }

    /// Returns the repository of `trust init`. Returns `None` if the user has not selected a
    /// repository. An unreadable file is an error, because the built-in trust root is not the
    /// user's selection.
    pub(crate) fn instance(&self) -> Outcome<Option<Instance>> {
        let path = self.instance_file();
        match fs_err::symlink_metadata(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let finding = Finding::error(
                    codes::trust::REPOSITORY_NOT_KEPT,
                    "cannot read the settings of `trust init`",
                );
                return Err(Failure::caused(failure::in_file(finding, &path), &error));
            }
        }
        serde_json::from_slice(&files::read(&path)?)
            .map(Some)
            .map_err(|error| {
                let finding = Finding::error(
                    codes::trust::REPOSITORY_NOT_KEPT,
                    "the settings of `trust init` are invalid",
                )
                .hint("run `kubectl bundle trust reset`, and `trust init` again");
                Failure::caused(failure::in_file(finding, &path), &error)
            })
    }

    /// Stores the selection of a repository.
    pub(super) fn store_instance(&self, instance: &Instance) -> Outcome {
        let path = self.instance_file();
        let text = serde_json::to_vec(instance)
            .map_err(|error| Failure::caused(store_error(&path), &error))?;
        files::replace(&path, &text, |there| {
            serde_json::from_slice::<Instance>(there).is_ok()
        })
    }

    /// Deletes the stored selection. Returns `true` if a selection existed.
    pub(crate) fn delete_instance(&self) -> Outcome<bool> {
        let path = self.instance_file();
        match fs_err::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Failure::caused(store_error(&path), &error)),
        }
    }

    /// Returns the stored metadata of this repository and initial root.
    pub(super) fn metadata_of(&self, instance: &Instance) -> StoredMetadata {
        let name = Digest::of(format!("{}\n{}", instance.mirror, instance.root).as_bytes());
        let name: String = name.hex().chars().take(32).collect();
        StoredMetadata(self.cache.join(NAME).join("tuf").join(name))
    }
}

/// Folder with the metadata of a repository.
#[derive(Debug, Clone)]
pub(super) struct StoredMetadata(PathBuf);

impl StoredMetadata {
    /// Returns the stored metadata for a refresh.
    pub(super) fn begin_update(&self) -> Arc<MetadataUpdate> {
        Arc::new(MetadataUpdate {
            folder: self.0.clone(),
            store: FileStore::new(&self.0),
            changes: Mutex::default(),
        })
    }

    /// Deletes the metadata of a repository that was not accepted as trusted.
    pub(super) fn clear(&self) {
        // A missing folder is no error. Files that remain are not trusted.
        let _ = fs_err::remove_dir_all(&self.0);
    }

    /// Returns the time of the last successful refresh; `None` if the time is unknown.
    pub(super) fn last_refresh(&self) -> Option<Timestamp> {
        let bytes = fs_err::read(self.0.join(REFRESH_TIME_FILE)).ok()?;
        let refresh: RefreshTime = serde_json::from_slice(&bytes).ok()?;
        Some(refresh.at)
    }

    /// Stores the time of a refresh.
    pub(super) fn set_last_refresh(&self, at: Timestamp) -> Outcome {
        let path = self.0.join(REFRESH_TIME_FILE);
        let text = serde_json::to_vec(&RefreshTime { at })
            .map_err(|error| Failure::caused(store_error(&path), &error))?;
        files::replace(&path, &text, |_| true)
    }
}

/// Stored metadata and the changes of a refresh.
///
/// Roots are stored immediately, as TUF's client workflow requires (5.3.8). The new timestamp,
/// snapshot and targets together replace the files of the last complete refresh. Therefore the
/// stored metadata is always usable offline. Valid metadata of a rejected refresh is stored
/// separately, because versions must not decrease (5.4.5, 5.5.7).
pub(super) struct MetadataUpdate {
    folder: PathBuf,
    store: FileStore,
    changes: Mutex<BTreeMap<String, Vec<u8>>>,
}

/// Valid metadata of a rejected refresh: a timestamp, and its snapshot if valid.
#[derive(Serialize, Deserialize)]
struct RejectedRefresh {
    timestamp: String,
    snapshot: Option<String>,
}

impl MetadataUpdate {
    /// Stores the changes file by file. The timestamp is last, because it refers to all other
    /// files. Removes the metadata of rejected refreshes, which is older than the changes.
    pub(super) fn store(&self) -> Result<(), Error> {
        let changes = self.changes();
        // Versioned copies (`7.snapshot.json`) are not stored. Only mirrors need these copies, and
        // the copies would accumulate in the folder.
        let lasting = |name: &&String| !name.starts_with(|first: char| first.is_ascii_digit());
        let mut names: Vec<&String> = changes.keys().filter(lasting).collect();
        names.sort_by_key(|name| *name == TIMESTAMP);
        for name in names {
            self.store.store(name, &changes[name])?;
        }
        self.delete_files(&REJECTED_FILES)
    }

    /// Returns the current root, if one was stored.
    pub(super) fn root(&self) -> Result<Option<Vec<u8>>, Error> {
        self.load(ROOT)
    }

    /// Returns `true` if this refresh has new, valid timestamp metadata.
    pub(super) fn has_new_timestamp(&self) -> bool {
        self.changes().contains_key(TIMESTAMP)
    }

    /// Stores the valid metadata of a rejected refresh: the timestamp or, with `with_snapshot`, the
    /// timestamp and its snapshot. The two cases have separate files, so that a later timestamp
    /// without a snapshot does not replace the versions of targets in the snapshot.
    pub(super) fn store_rejected(&self, with_snapshot: bool) -> Result<(), Error> {
        let changes = self.changes();
        let text = |name: &str| {
            let bytes = changes.get(name)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let Some(timestamp) = text(TIMESTAMP) else {
            return Ok(());
        };
        let snapshot = text(SNAPSHOT).filter(|_| with_snapshot);
        let name = REJECTED_FILES[usize::from(snapshot.is_some())];
        let rejected = RejectedRefresh {
            timestamp,
            snapshot,
        };
        let bytes = serde_json::to_vec(&rejected)
            .map_err(|error| Error::Malformed(format!("{name}: {error}")))?;
        self.store.store(name, &bytes)
    }

    /// Returns every stored timestamp, each with its snapshot, if there is one.
    pub(super) fn kept_versions(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let load = |name: &str| self.store.load(name).ok().flatten();
        let complete = load(TIMESTAMP).map(|timestamp| (timestamp, load(SNAPSHOT)));
        let rejected = REJECTED_FILES.iter().filter_map(|name| {
            let rejected: RejectedRefresh = serde_json::from_slice(&load(name)?).ok()?;
            let snapshot = rejected.snapshot.map(String::into_bytes);
            Some((rejected.timestamp.into_bytes(), snapshot))
        });
        complete.into_iter().chain(rejected).collect()
    }

    /// Stores a root. If the root changes the keys of timestamp or snapshot, stored versions with
    /// signatures by the old keys are deleted. An attacker with the old keys may have increased
    /// these versions as far as possible (5.3.11).
    fn store_root(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let before = self.store.load(name)?;
        if before.as_deref() == Some(bytes) {
            return Ok(());
        }
        if name == ROOT
            && before.is_some_and(|before| keys_of_versions(&before) != keys_of_versions(bytes))
        {
            self.delete_files(&[TIMESTAMP, SNAPSHOT])?;
            self.delete_files(&REJECTED_FILES)?;
        }
        self.store.store(name, bytes)
    }

    fn delete_files(&self, names: &[&str]) -> Result<(), Error> {
        for name in names {
            match fs_err::remove_file(self.folder.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("removing {name}"), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn changes(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the keys of timestamp and snapshot in a root, for comparison only.
fn keys_of_versions(root: &[u8]) -> Option<[Value; 2]> {
    let root: Value = serde_json::from_slice(root).ok()?;
    Some(["timestamp", "snapshot"].map(|role| {
        let ids = &root["signed"]["roles"][role]["keyids"];
        let mut ids = ids.as_array().cloned().unwrap_or_default();
        ids.sort_by_key(Value::to_string);
        Value::Array(ids)
    }))
}

impl MetadataStore for MetadataUpdate {
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let changed = self.changes().get(name).cloned();
        match changed {
            Some(bytes) => Ok(Some(bytes)),
            None => self.store.load(name),
        }
    }

    fn store(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.changes().insert(name.to_owned(), bytes.to_vec());
        if name == ROOT || name.starts_with(ROOTS) {
            self.store_root(name, bytes)?;
        }
        Ok(())
    }
}

fn store_error(path: &Path) -> Finding {
    let finding = Finding::error(codes::usage::FILE_UNWRITABLE, "cannot write the file");
    failure::in_file(finding, path)
}
