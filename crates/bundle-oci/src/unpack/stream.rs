//! Reads one layer: counts, hashes, decompresses, and reads the entries of the archive.

use std::cell::Cell;
use std::cmp::Ordering;
use std::io::{self, BufReader, Read, Write};
use std::rc::Rc;

use bundle_core::reference::Digest;

use super::UnpackError;
use super::meter::{CompressedReader, Decoder, GzipReader, UncompressedReader};
use crate::manifest::Descriptor;
use crate::media;

/// Maximum number of bytes of headers before an entry. The `tar` crate reads long names and PAX
/// records into memory.
const HEADERS: u64 = 1 << 20;

/// Name of an archive in messages.
const ARCHIVE: &str = "the archive";

/// An entry of the `tar` crate.
pub(super) type TarEntry<'a, R> = tar::Entry<'a, UncompressedReader<R>>;

/// The entries of one layer. An entry must be read before the next entry is requested.
pub(super) struct TarEntries<'a, R: Read> {
    inner: tar::Entries<'a, UncompressedReader<R>>,
    /// Remaining bytes for the headers of the next entry; `None` while content is read.
    headers: Rc<Cell<Option<u64>>>,
}

impl<'a, R: Read> TarEntries<'a, R> {
    /// Returns the next entry.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry<'a, R>>, UnpackError> {
        self.headers.set(Some(HEADERS));
        let item = self
            .inner
            .next()
            .transpose()
            .map_err(|error| malformed(&error));
        self.headers.set(None);
        item
    }
}

/// Returns the whole content of a file of `size` bytes.
pub(super) fn content<R: Read>(
    path: &str,
    size: u64,
    mut item: TarEntry<'_, R>,
    sink: &mut impl Write,
) -> Result<(), UnpackError> {
    let mut buffer = vec![
        0;
        usize::try_from(size)
            .unwrap_or(usize::MAX)
            .clamp(512, 64 << 10)
    ];
    let mut count = 0;
    loop {
        let read = item.read(&mut buffer).map_err(|error| malformed(&error))?;
        if read == 0 {
            break;
        }
        count += read as u64;
        sink.write_all(&buffer[..read])
            .map_err(|error| unwritable(path, &error))?;
    }
    if count == size {
        Ok(())
    } else {
        Err(malformed(&io::Error::other(format!(
            "it ends inside `{path}`"
        ))))
    }
}

fn malformed(error: &io::Error) -> UnpackError {
    UnpackError::Malformed {
        what: ARCHIVE.to_owned(),
        why: error.to_string(),
    }
}

pub(super) fn unwritable(path: &str, error: &io::Error) -> UnpackError {
    UnpackError::Unwritable {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

/// Reads a whole layer and passes its entries to `walk`. Returns the number of uncompressed bytes.
/// `diff_id` is `None` for an archive that is not a layer of an image.
pub(super) fn layer<R: Read>(
    layer: &Descriptor,
    diff_id: Option<&Digest>,
    input: R,
    most: u64,
    ratio: u64,
    walk: impl FnOnce(&mut TarEntries<'_, R>) -> Result<(), UnpackError>,
) -> Result<u64, UnpackError> {
    let what = match diff_id {
        Some(_) => format!("layer {}", layer.digest),
        None => ARCHIVE.to_owned(),
    };
    let metered = BufReader::new(CompressedReader::new(input, layer.size));
    let decoder = if is_compressed(layer)? {
        Decoder::Gzip(GzipReader::new(metered))
    } else {
        Decoder::Plain(metered)
    };
    let headers = Rc::new(Cell::new(None));
    let inflated = UncompressedReader::new(decoder, most, ratio, Rc::clone(&headers));
    let mut archive = tar::Archive::new(inflated);
    let walked = match archive.entries() {
        Ok(inner) => walk(&mut TarEntries { inner, headers }),
        Err(error) => Err(malformed(&error)),
    };
    let mut inflated = archive.into_inner();
    let padded = walked.is_ok().then(|| inflated.rest_is_zero());
    let (overrun, diff) = (inflated.overrun(), inflated.digest());
    let count = inflated.count();

    // A digest mismatch is reported first, because it explains every other error.
    let mut metered = inflated.into_source();
    let arrived = metered.drain();
    if arrived != layer.size || metered.digest() != layer.digest {
        let found = match arrived.cmp(&layer.size) {
            Ordering::Equal => metered.digest().to_string(),
            Ordering::Greater => format!("more than its {} bytes", layer.size),
            Ordering::Less => format!("{arrived} of {} bytes", layer.size),
        };
        return Err(UnpackError::DigestMismatch {
            what,
            expected: layer.digest.clone(),
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
    if let Some(diff_id) = diff_id
        && diff != *diff_id
    {
        return Err(UnpackError::DigestMismatch {
            what: format!("{what}, unpacked,"),
            expected: diff_id.clone(),
            found: diff.to_string(),
        });
    }
    Ok(count)
}

/// Returns `true` if the layer is compressed, and an error for unsupported media types.
pub(super) fn is_compressed(layer: &Descriptor) -> Result<bool, UnpackError> {
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
