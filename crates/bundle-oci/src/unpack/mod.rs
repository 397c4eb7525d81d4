//! Unpacks untrusted layers. All content is streamed through counters and hashes. This module
//! unpacks into memory, and the module `disk` unpacks onto disk.

pub mod disk;
mod entry;
mod entry_budget;
mod meter;
mod sink;
mod stream;

use std::collections::BTreeMap;
use std::io::Read;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::package::keys;
use bundle_core::reference::Digest;

use crate::limits::{Limits, format_size};
use crate::manifest::{Descriptor, ImageConfig, ROOTFS_TYPE};
use crate::media;
use entry::{AcceptedEntry, AcceptedKind};
pub use entry::{check as check_path, path_inside_file};
use entry_budget::EntryBudget;
pub use sink::{FileSink, InMemory};
use stream::TarEntries;

/// Error of unpacking. The content is not used after this error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// An entry that is not allowed in a bundle.
    #[error("the archive's entry `{entry}` {why}")]
    UnsafeEntry {
        /// Escaped name of the entry.
        entry: String,
        /// Reason, as the end of a sentence.
        why: String,
    },
    /// An object exceeds a limit.
    #[error("{what} is larger than the limit of {limit}")]
    TooLarge {
        /// Object that is too large.
        what: String,
        /// The limit, formatted for people.
        limit: String,
    },
    /// An object is damaged, or does not have the declared format.
    #[error("{what} cannot be read: {why}")]
    Malformed {
        /// Object that cannot be read.
        what: String,
        /// Reason.
        why: String,
    },
    /// The bytes do not match their digest.
    #[error("{what} does not match its digest: expected {expected}, received {found}")]
    DigestMismatch {
        /// Object that was read.
        what: String,
        /// Expected digest.
        expected: Digest,
        /// Digest or number of bytes of the content that was read.
        found: String,
    },
    /// The disk returned an error.
    #[error("`{path}` cannot be written: {why}")]
    Unwritable {
        /// Path in the image.
        path: String,
        /// Error of the operating system.
        why: String,
    },
    /// Unsupported media type.
    #[error("{what} is {found}, expected {wanted}")]
    WrongMediaType {
        /// Object with the unsupported media type.
        what: String,
        /// Media type of the object.
        found: String,
        /// Supported media type.
        wanted: &'static str,
    },
}

impl UnpackError {
    /// Returns the diagnostic of the error.
    pub fn finding(&self) -> Finding {
        let (code, hint) = match self {
            Self::UnsafeEntry { .. } => (
                codes::registry::UNSAFE_ENTRY,
                "a bundle contains only regular files with relative paths; build it with `kubectl bundle build`",
            ),
            Self::TooLarge { .. } => (
                codes::registry::TOO_LARGE,
                "a bundle contains manifests; move images and data to separate artifacts",
            ),
            Self::Malformed { .. } => (
                codes::registry::MALFORMED,
                "push it again with `kubectl bundle push`",
            ),
            Self::DigestMismatch { .. } => (
                codes::registry::DIGEST_MISMATCH,
                "the content was discarded; check the registry, its storage and proxies",
            ),
            Self::Unwritable { .. } => (
                codes::usage::FILE_UNWRITABLE,
                "free space, or choose a writable folder; no partial files remain",
            ),
            Self::WrongMediaType { .. } => (
                codes::registry::WRONG_MEDIA_TYPE,
                "a bundle is an OCI image with tar or tar+gzip layers",
            ),
        };
        Finding::error(code, self.to_string()).hint(hint)
    }
}

impl From<UnpackError> for Finding {
    fn from(error: UnpackError) -> Self {
        error.finding()
    }
}

/// An image that is being unpacked into memory or a sink, with the remaining limits.
pub struct Unpacker<S: FileSink = InMemory> {
    files: BTreeMap<String, S::File>,
    sink: S,
    limits: Limits,
    bytes: u64,
    budget: EntryBudget,
    image: ImageLayers,
}

/// A gzipped archive that was unpacked into a sink.
#[derive(Debug)]
pub struct UnpackedArchive<S: FileSink> {
    /// The sink's value for each file.
    pub files: BTreeMap<String, S::File>,
    /// The sink.
    pub sink: S,
    /// Size of the uncompressed archive, in bytes.
    pub size: u64,
}

impl Unpacker {
    /// Creates an unpacker for the verified image configuration and its layers.
    pub fn new(
        config: &Descriptor,
        config_bytes: &[u8],
        layers: &[Descriptor],
        limits: Limits,
    ) -> Result<Self, UnpackError> {
        Self::onto(InMemory::default(), config, config_bytes, layers, limits)
    }

    /// Returns the files, after all layers were unpacked.
    pub fn finish(self) -> Files {
        self.files
    }
}

impl<S: FileSink> Unpacker<S> {
    /// Creates an unpacker that writes the content of files to `sink` while the layers are read.
    pub fn onto(
        sink: S,
        config: &Descriptor,
        config_bytes: &[u8],
        layers: &[Descriptor],
        limits: Limits,
    ) -> Result<Self, UnpackError> {
        let image = ImageLayers::new(config, config_bytes, layers, &limits)?;
        Ok(Self::with_layers(sink, image, limits))
    }

    fn with_layers(sink: S, image: ImageLayers, limits: Limits) -> Self {
        Self {
            files: BTreeMap::new(),
            sink,
            bytes: limits.total,
            budget: EntryBudget::new(limits),
            image,
            limits,
        }
    }

    /// Returns `true` if layer `index` must be unpacked. Returns `false` if the layer contains a
    /// resource. Such a layer can have any size, and need not be fetched.
    pub fn wants(&self, index: usize) -> bool {
        let layer = self.image.layers.get(index);
        layer.is_none_or(|layer| !is_resource(layer))
    }

    /// Unpacks layer `index` from `input` over the lower layers. Returns an error if `input` is too
    /// long or too short. A read error of `input` is returned as truncated content, so the caller
    /// must report the read error instead.
    pub fn layer(&mut self, index: usize, input: impl Read) -> Result<(), UnpackError> {
        let (layer, diff_id) = self.image.layer(index)?;
        self.stream(&layer, Some(&diff_id), input)
    }

    /// Unpacks a gzipped archive that is not a layer of an image. The digest of its uncompressed
    /// content is not known.
    pub fn archive(
        sink: S,
        archive: &Descriptor,
        limits: Limits,
        input: impl Read,
    ) -> Result<UnpackedArchive<S>, UnpackError> {
        let image = ImageLayers {
            layers: Vec::new(),
            diff_ids: Vec::new(),
        };
        let mut unpacker = Self::with_layers(sink, image, limits);
        unpacker.stream(archive, None, input)?;
        let size = limits.total - unpacker.bytes;
        let (files, sink) = unpacker.into_parts();
        Ok(UnpackedArchive { files, sink, size })
    }

    fn stream(
        &mut self,
        layer: &Descriptor,
        diff_id: Option<&Digest>,
        input: impl Read,
    ) -> Result<(), UnpackError> {
        let (bytes, ratio) = (self.bytes, self.limits.ratio);
        let count = stream::layer(layer, diff_id, input, bytes, ratio, |entries| {
            self.walk(entries)
        })?;
        self.bytes = self.bytes.saturating_sub(count);
        Ok(())
    }

    /// Returns the value of the sink for each file, and the sink. All layers must have been
    /// unpacked.
    pub fn into_parts(self) -> (BTreeMap<String, S::File>, S) {
        (self.files, self.sink)
    }

    /// Removes the files of lower layers at and below `path`. If `below` is `true`, a file at
    /// `path` itself is kept. Only files below `path` are visited, because an image can have
    /// thousands of whiteouts.
    fn remove(&mut self, path: &str, below: bool) {
        if path.is_empty() {
            self.files.clear();
            return;
        }
        if !below {
            self.files.remove(path);
        }
        let prefix = format!("{path}/");
        let inside = self.files.range(prefix.clone()..);
        let inside = inside.take_while(|(name, _)| name.starts_with(&prefix));
        let inside: Vec<String> = inside.map(|(name, _)| name.clone()).collect();
        for name in inside {
            self.files.remove(&name);
        }
    }

    fn walk<R: Read>(&mut self, entries: &mut TarEntries<'_, R>) -> Result<(), UnpackError> {
        let mut files = BTreeMap::new();
        let mut removed = Vec::new();
        while let Some(mut item) = entries.next()? {
            self.budget.charge_entry()?;
            let AcceptedEntry { path, kind } = entry::accept(&mut item)?;
            match kind {
                AcceptedKind::Folder => {
                    if files.contains_key(&path) {
                        return Err(entry::refused(&path, "is both a file and a folder"));
                    }
                }
                AcceptedKind::Removal { below } => {
                    self.budget.charge_name(&path)?;
                    removed.push((path, below));
                }
                AcceptedKind::File { size } => {
                    if size > self.limits.file {
                        return Err(UnpackError::TooLarge {
                            what: format!("the file `{path}` ({})", format_size(size)),
                            limit: format_size(self.limits.file),
                        });
                    }
                    if files.contains_key(&path) {
                        return Err(entry::refused(&path, "appears twice"));
                    }
                    self.budget.charge_name(&path)?;
                    stream::content(&path, size, item, &mut self.sink)?;
                    let stored = self.sink.end_file();
                    let stored = stored.map_err(|error| stream::unwritable(&path, &error))?;
                    files.insert(path, stored);
                }
            }
        }
        for (path, below) in removed {
            self.remove(&path, below);
        }
        self.files.extend(files);
        entry::reject_files_as_folders(&self.files)
    }
}

/// The layers of an image with the digests of their uncompressed content.
#[derive(Debug)]
struct ImageLayers {
    layers: Vec<Descriptor>,
    diff_ids: Vec<Digest>,
}

impl ImageLayers {
    fn new(
        config: &Descriptor,
        config_bytes: &[u8],
        layers: &[Descriptor],
        limits: &Limits,
    ) -> Result<Self, UnpackError> {
        if !media::is_config(&config.media_type) {
            return Err(UnpackError::WrongMediaType {
                what: "the manifest's configuration".to_owned(),
                found: config.media_type.clone(),
                wanted: media::CONFIG,
            });
        }
        if layers.len() > limits.layers {
            return Err(UnpackError::TooLarge {
                what: format!("an image of {} layers", layers.len()),
                limit: format!("{} layers", limits.layers),
            });
        }
        let malformed = |why: String| UnpackError::Malformed {
            what: "the image configuration".to_owned(),
            why,
        };
        let read: ImageConfig =
            serde_json::from_slice(config_bytes).map_err(|error| malformed(error.to_string()))?;
        let kind = read.rootfs.kind.as_deref();
        if kind.is_some_and(|kind| kind != ROOTFS_TYPE) {
            return Err(malformed(format!(
                "its `rootfs.type` is not `{ROOTFS_TYPE}`"
            )));
        }
        let diff_ids = read.rootfs.diff_ids;
        if diff_ids.len() != layers.len() {
            return Err(malformed(format!(
                "it has {} layers, and the manifest has {}",
                diff_ids.len(),
                layers.len()
            )));
        }
        for layer in layers {
            if layer.size > limits.layer && !is_resource(layer) {
                return Err(UnpackError::TooLarge {
                    what: format!("layer {} ({})", layer.digest, format_size(layer.size)),
                    limit: format_size(limits.layer),
                });
            }
            stream::is_compressed(layer)?;
        }
        Ok(Self {
            layers: layers.to_vec(),
            diff_ids,
        })
    }

    fn layer(&self, index: usize) -> Result<(Descriptor, Digest), UnpackError> {
        match (self.layers.get(index), self.diff_ids.get(index)) {
            (Some(layer), Some(diff_id)) => Ok((layer.clone(), diff_id.clone())),
            _ => Err(UnpackError::Malformed {
                what: "the image".to_owned(),
                why: format!("it has no layer {index}"),
            }),
        }
    }
}

/// Returns `true` if a layer contains a resource, which is not applied to the cluster.
pub fn is_resource(layer: &Descriptor) -> bool {
    layer.annotations.contains_key(keys::RESOURCE_NAME)
}

#[cfg(test)]
pub(crate) mod hostile;
#[cfg(test)]
mod tests;
