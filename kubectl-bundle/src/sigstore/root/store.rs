//! What is kept of a TUF repository between two runs: who it is and where trust in it begins (the user's configuration), and what was fetched (a cache).

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
use crate::files;

const NAME: &str = "kubectl-bundle";
/// The file that says which repository is trusted.
const INSTANCE: &str = "trust.json";
/// The file beside the fetched ones that says when the repository was last asked.
const ASKED: &str = "asked.json";
/// Names that sigstore-tuf gives to what it stores.
const ROOT: &str = "root.json";
const ROOTS: &str = "root_history/";
pub(super) const TIMESTAMP: &str = "timestamp.json";
pub(super) const SNAPSHOT: &str = "snapshot.json";
/// What held of refreshes that were refused: without a snapshot, and with one.
const REFUSED: [&str; 2] = ["refused-timestamp.json", "refused-snapshot.json"];

/// The folders of a user's configuration and caches.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    pub(crate) config: PathBuf,
    /// `$XDG_CACHE_HOME`, else `~/.cache`.
    pub(crate) cache: PathBuf,
}

/// A TUF repository, and the metadata in which trust in it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instance {
    /// Its address.
    pub(crate) mirror: String,
    /// The text of its `root.json`.
    pub(crate) root: String,
}

#[derive(Serialize, Deserialize)]
struct Asked {
    at: Timestamp,
}

impl Instance {
    /// The public one; where trust in it begins is built in.
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

    /// The repository that `trust init` was told of, if it was. A file that cannot be read is an error: another root in its stead would be nobody's choice.
    pub(crate) fn instance(&self) -> Outcome<Option<Instance>> {
        let path = self.instance_file();
        match fs_err::symlink_metadata(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let finding = Finding::error(
                    codes::trust::REPOSITORY_NOT_KEPT,
                    "whether `trust init` was told of a repository cannot be seen",
                );
                return Err(Failure::caused(failure::in_file(finding, &path), &error));
            }
        }
        serde_json::from_slice(&files::read(&path)?)
            .map(Some)
            .map_err(|error| {
                let finding = Finding::error(
                    codes::trust::REPOSITORY_NOT_KEPT,
                    "what `trust init` wrote cannot be read",
                )
                .hint("run `kubectl bundle trust reset`, and `trust init` again");
                Failure::caused(failure::in_file(finding, &path), &error)
            })
    }

    /// From now on, this one.
    pub(super) fn keep(&self, instance: &Instance) -> Outcome {
        let path = self.instance_file();
        let text =
            serde_json::to_vec(instance).map_err(|error| Failure::caused(unkept(&path), &error))?;
        files::replace(&path, &text, |there| {
            serde_json::from_slice::<Instance>(there).is_ok()
        })
    }

    /// Back to the root that is built in. True if there was another.
    pub(crate) fn forget(&self) -> Outcome<bool> {
        let path = self.instance_file();
        match fs_err::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Failure::caused(unkept(&path), &error)),
        }
    }

    /// What was fetched of this repository from this beginning.
    pub(super) fn kept(&self, instance: &Instance) -> Kept {
        let name = Digest::of(format!("{}\n{}", instance.mirror, instance.root).as_bytes());
        let name: String = name.hex().chars().take(32).collect();
        Kept(self.cache.join(NAME).join("tuf").join(name))
    }
}

/// A folder of what was fetched of a repository.
#[derive(Debug, Clone)]
pub(super) struct Kept(PathBuf);

impl Kept {
    /// What is kept, and what a refresh would change of it.
    pub(super) fn draft(&self) -> Arc<Draft> {
        Arc::new(Draft {
            folder: self.0.clone(),
            kept: FileStore::new(&self.0),
            changes: Mutex::default(),
        })
    }

    /// Takes away what was fetched of a repository that is not trusted after all.
    pub(super) fn clear(&self) {
        // Where nothing was fetched there is nothing to take away, and what stays proves nothing.
        let _ = fs_err::remove_dir_all(&self.0);
    }

    /// When the repository was last asked with success; `None` where that is not known.
    pub(super) fn asked(&self) -> Option<Timestamp> {
        let bytes = fs_err::read(self.0.join(ASKED)).ok()?;
        let asked: Asked = serde_json::from_slice(&bytes).ok()?;
        Some(asked.at)
    }

    /// It was asked now.
    pub(super) fn set_asked(&self, at: Timestamp) -> Outcome {
        let path = self.0.join(ASKED);
        let text = serde_json::to_vec(&Asked { at })
            .map_err(|error| Failure::caused(unkept(&path), &error))?;
        files::replace(&path, &text, |_| true)
    }
}

/// What is kept, and changes to it. Roots are kept at once, as the client workflow of TUF has it (5.3.8). Timestamp, snapshot and targets replace those of the
/// last complete refresh together, so that there is always a state that can be used where nobody is asked. Of a refresh that was refused, what held is kept
/// beside them, since nothing may go below its versions any more (5.4.5, 5.5.7).
pub(super) struct Draft {
    folder: PathBuf,
    kept: FileStore,
    changes: Mutex<BTreeMap<String, Vec<u8>>>,
}

/// A timestamp, and the snapshot that it is about.
#[derive(Serialize, Deserialize)]
struct Refused {
    timestamp: String,
    snapshot: Option<String>,
}

impl Draft {
    /// Keeps the changes: file by file, the timestamp, which points to all others, last. What was kept of refused refreshes is below them.
    pub(super) fn keep(&self) -> Result<(), Error> {
        let changes = self.changes();
        // Copies by version (`7.snapshot.json`) are for mirrors; here they would only become more.
        let lasting = |name: &&String| !name.starts_with(|first: char| first.is_ascii_digit());
        let mut names: Vec<&String> = changes.keys().filter(lasting).collect();
        names.sort_by_key(|name| *name == TIMESTAMP);
        for name in names {
            self.kept.store(name, &changes[name])?;
        }
        self.forget(&REFUSED)
    }

    /// The root as it is now, if one was stored.
    pub(super) fn root(&self) -> Result<Option<Vec<u8>>, Error> {
        self.load(ROOT)
    }

    /// Returns `true` if a timestamp has come with this refresh, and holds.
    pub(super) fn has_new_timestamp(&self) -> bool {
        self.changes().contains_key(TIMESTAMP)
    }

    /// Keeps what held of a refresh that was refused: the newest timestamp, and, if `with_snapshot`, the newest snapshot with its timestamp. Of both, since
    /// a later timestamp says nothing of the targets.
    pub(super) fn keep_refused(&self, with_snapshot: bool) -> Result<(), Error> {
        let changes = self.changes();
        let text = |name: &str| {
            let bytes = changes.get(name)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let Some(timestamp) = text(TIMESTAMP) else {
            return Ok(());
        };
        let snapshot = text(SNAPSHOT).filter(|_| with_snapshot);
        let name = REFUSED[usize::from(snapshot.is_some())];
        let refused = Refused {
            timestamp,
            snapshot,
        };
        let bytes = serde_json::to_vec(&refused)
            .map_err(|error| Error::Malformed(format!("{name}: {error}")))?;
        self.kept.store(name, &bytes)
    }

    /// Every timestamp that is kept, each with the snapshot beside it.
    pub(super) fn kept_versions(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let load = |name: &str| self.kept.load(name).ok().flatten();
        let complete = load(TIMESTAMP).map(|timestamp| (timestamp, load(SNAPSHOT)));
        let refused = REFUSED.iter().filter_map(|name| {
            let refused: Refused = serde_json::from_slice(&load(name)?).ok()?;
            let snapshot = refused.snapshot.map(String::into_bytes);
            Some((refused.timestamp.into_bytes(), snapshot))
        });
        complete.into_iter().chain(refused).collect()
    }

    /// Keeps a root. If it gives the timestamp or the snapshot other keys, what the old ones signed says nothing any more: whoever had them may have gone
    /// ahead as far as they could (5.3.11).
    fn keep_root(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let before = self.kept.load(name)?;
        if before.as_deref() == Some(bytes) {
            return Ok(());
        }
        if name == ROOT
            && before.is_some_and(|before| keys_of_versions(&before) != keys_of_versions(bytes))
        {
            self.forget(&[TIMESTAMP, SNAPSHOT])?;
            self.forget(&REFUSED)?;
        }
        self.kept.store(name, bytes)
    }

    fn forget(&self, names: &[&str]) -> Result<(), Error> {
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

/// Who signs timestamps and snapshots, as a root says: compared, and for nothing else.
fn keys_of_versions(root: &[u8]) -> Option<[Value; 2]> {
    let root: Value = serde_json::from_slice(root).ok()?;
    Some(["timestamp", "snapshot"].map(|role| {
        let ids = &root["signed"]["roles"][role]["keyids"];
        let mut ids = ids.as_array().cloned().unwrap_or_default();
        ids.sort_by_key(Value::to_string);
        Value::Array(ids)
    }))
}

impl MetadataStore for Draft {
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let changed = self.changes().get(name).cloned();
        match changed {
            Some(bytes) => Ok(Some(bytes)),
            None => self.kept.load(name),
        }
    }

    fn store(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.changes().insert(name.to_owned(), bytes.to_vec());
        if name == ROOT || name.starts_with(ROOTS) {
            self.keep_root(name, bytes)?;
        }
        Ok(())
    }
}

fn unkept(path: &Path) -> Finding {
    let finding = Finding::error(codes::usage::FILE_UNWRITABLE, "the file cannot be written");
    failure::in_file(finding, path)
}
