//! Layers to files, without trusting a byte of them: everything streams through counters and hashes, and nothing is written to disk.
//! Not here: where layers come from (registry, layout), and what the files mean (bundle_core::format).

mod entry;
mod meter;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io::{BufReader, Read};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::reference::Digest;
use flate2::bufread::MultiGzDecoder;

use crate::limits::{Limits, human};
use crate::manifest::{Descriptor, ImageConfig};
use crate::media;
pub(crate) use entry::check as check_path;
use entry::{Kind, Taken};
use meter::{Decoder, Inflated, Metered};

/// Why content was not unpacked. Nothing of it is used then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// An entry that no bundle has.
    #[error("the layer's entry `{entry}` {why}")]
    UnsafeEntry {
        /// Its name, as far as it can be shown.
        entry: String,
        /// What is wrong with it, as the end of a sentence.
        why: String,
    },
    /// More than a limit allows.
    #[error("{what} is larger than the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit, as people read it.
        limit: String,
    },
    /// Damaged, or not in the format that it claims.
    #[error("{what} cannot be read: {why}")]
    Malformed {
        /// What cannot be read.
        what: String,
        /// Why.
        why: String,
    },
    /// The bytes are not those that were named.
    #[error("{what} is not what its digest says: {expected} was named, {found} arrived")]
    DigestMismatch {
        /// What was read.
        what: String,
        /// The digest that was asked for.
        expected: Digest,
        /// What the bytes hash to, or how many there were.
        found: String,
    },
    /// A kind of content that is not read.
    #[error("{what} is {found}, and {wanted} is read")]
    WrongMediaType {
        /// What was looked at.
        what: String,
        /// What it is.
        found: String,
        /// What would be read.
        wanted: &'static str,
    },
}

impl UnpackError {
    /// What a person is told.
    pub fn finding(&self) -> Finding {
        let (code, hint) = match self {
            Self::UnsafeEntry { .. } => (
                codes::registry::UNSAFE_ENTRY,
                "a bundle holds regular files under relative paths; build it with `kubectl bundle build`",
            ),
            Self::TooLarge { .. } => (
                codes::registry::TOO_LARGE,
                "a bundle holds manifests; keep images and data in artifacts of their own",
            ),
            Self::Malformed { .. } => (
                codes::registry::MALFORMED,
                "push it again with `kubectl bundle push`",
            ),
            Self::DigestMismatch { .. } => (
                codes::registry::DIGEST_MISMATCH,
                "the registry, its storage or something between is at fault; nothing was used",
            ),
            Self::WrongMediaType { .. } => (
                codes::registry::WRONG_MEDIA_TYPE,
                "a bundle is an OCI image with layers of tar or gzip over tar",
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

/// One image being unpacked: the files so far and what is left of its limits.
pub struct Unpacking {
    files: Files,
    limits: Limits,
    bytes: u64,
    entries: usize,
    diff_ids: Vec<Digest>,
    layers: Vec<Descriptor>,
}

impl Unpacking {
    /// Begins with the bytes of the image's configuration, whose digest has been checked, and its layers.
    pub fn new(
        config: &Descriptor,
        config_bytes: &[u8],
        layers: &[Descriptor],
        limits: Limits,
    ) -> Result<Self, UnpackError> {
        if !media::is_config(&config.media_type) {
            return Err(UnpackError::WrongMediaType {
                what: "the manifest's configuration".to_owned(),
                found: config.media_type.clone(),
                wanted: media::CONFIG,
            });
        }
        let malformed = |why: String| UnpackError::Malformed {
            what: "the image configuration".to_owned(),
            why,
        };
        let read: ImageConfig =
            serde_json::from_slice(config_bytes).map_err(|error| malformed(error.to_string()))?;
        let diff_ids = read.rootfs.diff_ids;
        if diff_ids.len() != layers.len() {
            return Err(malformed(format!(
                "it names {} layers and the manifest {}",
                diff_ids.len(),
                layers.len()
            )));
        }
        if layers.len() > limits.layers {
            return Err(UnpackError::TooLarge {
                what: format!("an image of {} layers", layers.len()),
                limit: format!("{} layers", limits.layers),
            });
        }
        for layer in layers {
            if layer.size > limits.layer {
                return Err(UnpackError::TooLarge {
                    what: format!("layer {} ({})", layer.digest, human(layer.size)),
                    limit: human(limits.layer),
                });
            }
            compression(layer)?;
        }
        Ok(Self {
            files: Files::new(),
            limits,
            bytes: limits.total,
            entries: limits.entries,
            diff_ids,
            layers: layers.to_vec(),
        })
    }

    /// Reads layer `index` from `input`, over what the layers below it left. `input` may be longer or shorter than it should be: that is found out.
    /// An error of the input itself shows as content that ends early; whoever feeds it knows better and says so instead.
    pub fn layer(&mut self, index: usize, input: impl Read) -> Result<(), UnpackError> {
        let (Some(layer), Some(diff_id)) = (
            self.layers.get(index).cloned(),
            self.diff_ids.get(index).cloned(),
        ) else {
            return Err(UnpackError::Malformed {
                what: "the image".to_owned(),
                why: format!("it has no layer {index}"),
            });
        };
        let what = format!("layer {}", layer.digest);
        let metered = BufReader::new(Metered::new(input, layer.size));
        let decoder = if compression(&layer)? {
            Decoder::Gzip(MultiGzDecoder::new(metered))
        } else {
            Decoder::Plain(metered)
        };
        let mut archive = tar::Archive::new(Inflated::new(decoder, self.bytes, self.limits.ratio));
        let walked = self.walk(&mut archive);
        let mut inflated = archive.into_inner();
        let padded = walked.is_ok().then(|| inflated.rest_is_zero());
        let (overrun, diff) = (inflated.overrun(), inflated.digest());
        let count = inflated.count();

        // Bytes that are not the named ones are the first thing to say: what they unpack to is beside the point.
        let mut metered = inflated.into_source();
        let arrived = metered.drain();
        if arrived != layer.size || metered.digest() != layer.digest {
            let found = match arrived.cmp(&layer.size) {
                Ordering::Equal => metered.digest().to_string(),
                Ordering::Greater => format!("more than its {} bytes", layer.size),
                Ordering::Less => format!("only {arrived} of {} bytes", layer.size),
            };
            return Err(UnpackError::DigestMismatch {
                what,
                expected: layer.digest,
                found,
            });
        }
        if let Some(limit) = overrun {
            return Err(UnpackError::TooLarge {
                what: format!("{what}, unpacked,"),
                limit,
            });
        }
        walked?;
        match padded {
            Some(Ok(true)) | None => {}
            Some(Ok(false)) => {
                return Err(UnpackError::Malformed {
                    what,
                    why: "there is data after the end of the archive".to_owned(),
                });
            }
            Some(Err(error)) => {
                return Err(UnpackError::Malformed {
                    what,
                    why: error.to_string(),
                });
            }
        }
        if diff != diff_id {
            return Err(UnpackError::DigestMismatch {
                what: format!("{what}, unpacked,"),
                expected: diff_id,
                found: diff.to_string(),
            });
        }
        self.bytes = self.bytes.saturating_sub(count);
        Ok(())
    }

    /// The files, after every layer has been read.
    pub fn finish(self) -> Files {
        self.files
    }

    fn walk<R: Read>(&mut self, archive: &mut tar::Archive<R>) -> Result<(), UnpackError> {
        let malformed = |error: std::io::Error| UnpackError::Malformed {
            what: "the layer's archive".to_owned(),
            why: error.to_string(),
        };
        let mut seen = BTreeSet::new();
        let mut files = Files::new();
        let mut removed = Vec::new();
        for item in archive.entries().map_err(malformed)? {
            let mut item = item.map_err(malformed)?;
            self.entries = self
                .entries
                .checked_sub(1)
                .ok_or_else(|| UnpackError::TooLarge {
                    what: "the number of entries".to_owned(),
                    limit: self.limits.entries.to_string(),
                })?;
            let Taken { path, kind } = entry::take(&item)?;
            match kind {
                Kind::Folder => {
                    if files.contains_key(&path) {
                        return Err(entry::refused(&path, "is a file and a folder at once"));
                    }
                }
                Kind::Removal { below } => removed.push((path, below)),
                Kind::File { size } => {
                    if size > self.limits.file {
                        return Err(UnpackError::TooLarge {
                            what: format!("the file `{path}` ({})", human(size)),
                            limit: human(self.limits.file),
                        });
                    }
                    if !seen.insert(path.clone()) {
                        return Err(entry::refused(&path, "appears twice"));
                    }
                    let mut content = Vec::new();
                    item.read_to_end(&mut content).map_err(malformed)?;
                    if content.len() as u64 != size {
                        return Err(malformed(std::io::Error::other(format!(
                            "it ends inside `{path}`"
                        ))));
                    }
                    files.insert(path, content);
                }
            }
        }
        for (path, below) in removed {
            let prefix = format!("{path}/");
            let whole = path.is_empty();
            self.files.retain(|name, _| {
                !(whole || name.starts_with(&prefix) || (!below && *name == path))
            });
        }
        self.files.extend(files);
        entry::no_file_is_a_folder(&self.files)
    }
}

/// Whether the layer is compressed; an error if it is of a kind that is not read.
fn compression(layer: &Descriptor) -> Result<bool, UnpackError> {
    match layer.media_type.as_str() {
        media::LAYER_GZIP | media::DOCKER_LAYER_GZIP => Ok(true),
        media::LAYER_TAR => Ok(false),
        other => Err(UnpackError::WrongMediaType {
            what: format!("layer {}", layer.digest),
            found: other.to_owned(),
            wanted: media::LAYER_GZIP,
        }),
    }
}

#[cfg(test)]
mod tests;
