//! The entries of ConfigMaps as files: their paths, their limits, and the digest of all files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bundle_core::content::FileIndex;
use bundle_oci::Limits;
use bundle_oci::limits::NAMES;
use bundle_oci::unpack::{self, FileSink};
use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest as _, Sha256};

use super::ConfigMapsError;

/// A sink that discards all data.
pub(in crate::sources) struct NullSink;

impl io::Write for NullSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileSink for NullSink {
    type File = ();

    fn end_file(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The files of all ConfigMaps that were added.
pub(super) struct CollectedFiles<S: FileSink> {
    pub(super) sink: S,
    pub(super) files: BTreeMap<String, S::File>,
    pub(super) index: FileIndex,
    /// The name of the ConfigMap that contains each path.
    origins: BTreeMap<String, String>,
    limits: Limits,
    bytes: u64,
    names: usize,
}

impl<S: FileSink> CollectedFiles<S> {
    pub(super) fn new(sink: S, limits: Limits) -> Self {
        Self {
            sink,
            files: BTreeMap::new(),
            index: FileIndex::default(),
            origins: BTreeMap::new(),
            limits,
            bytes: 0,
            names: 0,
        }
    }

    /// Adds the entries of the ConfigMap `name` as files in each of `folders`. Fails at the first
    /// path that another ConfigMap also contains.
    pub(super) fn add(
        &mut self,
        name: &str,
        folders: &BTreeSet<&str>,
        map: &ConfigMap,
    ) -> Result<(), ConfigMapsError> {
        let text = map.data.iter().flatten();
        let text = text.map(|(key, text)| (key, text.as_bytes()));
        let binary = map.binary_data.iter().flatten();
        let binary = binary.map(|(key, bytes)| (key, bytes.0.as_slice()));
        for (key, bytes) in text.chain(binary) {
            for folder in folders {
                self.add_file(name, folder, key, bytes)?;
            }
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        name: &str,
        folder: &str,
        key: &str,
        bytes: &[u8],
    ) -> Result<(), ConfigMapsError> {
        let path = if folder.is_empty() {
            key.to_owned()
        } else {
            format!("{folder}/{key}")
        };
        let safe = match key {
            // The API server rejects these keys, so this case does not occur.
            _ if key.contains('/') => Err("has an invalid key"),
            _ => unpack::check_path(&path),
        };
        safe.map_err(|why| ConfigMapsError::UnsafePath {
            name: name.to_owned(),
            path: path.clone(),
            why,
        })?;
        if let Some(first) = self.origins.get(&path) {
            // The first duplicate path is an error, so the following entries are not read.
            let names: BTreeSet<&str> = [first.as_str(), name].into();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(ConfigMapsError::Duplicates(format!(
                "duplicate path {path:?} found in configmaps [{}]",
                names.join(" ")
            )));
        }
        self.origins.insert(path.clone(), name.to_owned());
        self.within_limits(&path, bytes.len() as u64)?;
        let written = self.sink.write_all(bytes);
        let file = written.and_then(|()| self.sink.end_file());
        let file = file.map_err(ConfigMapsError::Unstorable)?;
        self.files.insert(path.clone(), file);
        self.index.insert(path, Sha256::digest(bytes).into());
        Ok(())
    }

    fn within_limits(&mut self, path: &str, bytes: u64) -> Result<(), ConfigMapsError> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.names = self.names.saturating_add(path.len());
        let limits = &self.limits;
        let what = if bytes > limits.file {
            format!("a file {path:?} of more than {} MiB", limits.file >> 20)
        } else if self.bytes > limits.total {
            format!("files of more than {} MiB", limits.total >> 20)
        } else if self.files.len() >= limits.entries {
            format!("more than {} files", limits.entries)
        } else if self.names > NAMES {
            format!("paths of more than {} KiB", NAMES >> 10)
        } else {
            return Ok(());
        };
        Err(ConfigMapsError::TooLarge(what))
    }

    /// Fails if a path is both a file and a folder.
    pub(super) fn check(&self) -> Result<(), ConfigMapsError> {
        let paths = self.origins.keys().map(String::as_str);
        let is_file = |path: &str| self.origins.contains_key(path);
        let Some((path, _)) = unpack::path_inside_file(paths, is_file) else {
            return Ok(());
        };
        Err(ConfigMapsError::UnsafePath {
            name: self.origins.get(path).cloned().unwrap_or_default(),
            path: path.to_owned(),
            why: "is inside of a path that is a file",
        })
    }
}
