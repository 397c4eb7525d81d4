//! Gzipped archives from servers and uploads. The received bytes are stored in a file, and the
//! archive is then unpacked from this file. Therefore its digest is known before it is unpacked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, Write};

use bundle_core::reference::Digest;
use bytes::Bytes;
use futures::Stream;

use crate::hash::Hasher;
use crate::limits::Limits;
use crate::manifest::Descriptor;
use crate::media;
use crate::transfer::blocking::{StreamReader, on_thread};
use crate::unpack::{FileSink, UnpackError, UnpackedArchive, Unpacker};

/// First bytes of a gzip stream.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Digest, size and format of stored bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBytes {
    /// Digest and size.
    pub descriptor: Descriptor,
    /// True if the bytes begin like a gzip stream.
    pub is_gzip: bool,
}

/// Reason why bytes were not stored.
#[derive(Debug)]
pub enum StoreError<E> {
    /// The stream failed.
    Stream(E),
    /// The target cannot be written.
    Storage(io::Error),
    /// The thread of the writer panicked.
    Stopped,
}

/// Reason why a stored archive was not unpacked.
#[derive(Debug)]
pub enum ArchiveFileError {
    /// The file cannot be read.
    Storage(io::Error),
    /// The content of the archive is not allowed or is damaged.
    Content(UnpackError),
}

/// Writes a stream to `target` on a thread of its own. The caller limits the size of the stream.
pub async fn store<W, E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    target: W,
) -> Result<(W, StoredBytes), StoreError<E>>
where
    W: Write + Send + 'static,
{
    let copied = on_thread(pieces, move |reader| copy(reader, target)).await;
    let (copied, fed) = copied.ok_or(StoreError::Stopped)?;
    // The error of an interrupted transfer has priority, because it is the cause of a short file.
    fed.map_err(StoreError::Stream)?;
    copied.map_err(StoreError::Storage)
}

/// Unpacks an archive into `sink` on a thread of its own. Fails if the file does not have the
/// digest and size of `archive`.
pub async fn unpack<S>(
    mut file: File,
    archive: Descriptor,
    limits: Limits,
    sink: S,
) -> Result<(BTreeMap<String, S::File>, S), ArchiveFileError>
where
    S: FileSink<File: Send> + Send + 'static,
{
    let work = move || {
        file.rewind().map_err(ArchiveFileError::Storage)?;
        let unpacked = Unpacker::archive(sink, &archive, limits, BufReader::new(file));
        let UnpackedArchive { files, sink, .. } = unpacked.map_err(ArchiveFileError::Content)?;
        Ok::<_, ArchiveFileError>((files, sink))
    };
    let unpacked = tokio::task::spawn_blocking(work).await;
    unpacked.unwrap_or_else(|_| Err(ArchiveFileError::Content(stopped())))
}

/// Returns the error of an unpacker that panicked.
pub(crate) fn stopped() -> UnpackError {
    UnpackError::Malformed {
        what: "the archive".to_owned(),
        why: "the unpacker stopped unexpectedly".to_owned(),
    }
}

/// Copies all bytes to `target`.
fn copy<W: Write>(mut reader: StreamReader, mut target: W) -> io::Result<(W, StoredBytes)> {
    let (mut hasher, mut size, mut head) = (Hasher::new(), 0, Vec::new());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        let bytes = &buffer[..read];
        let missing = GZIP.len().saturating_sub(head.len()).min(read);
        head.extend_from_slice(&bytes[..missing]);
        hasher.update(bytes);
        size += read as u64;
        target.write_all(bytes)?;
    }
    target.flush()?;
    let descriptor = gzip_descriptor(hasher.finish(), size);
    let is_gzip = head == GZIP;
    Ok((
        target,
        StoredBytes {
            descriptor,
            is_gzip,
        },
    ))
}

/// Returns the descriptor of a gzipped archive.
pub fn gzip_descriptor(digest: Digest, size: u64) -> Descriptor {
    Descriptor {
        digest,
        size,
        ..Descriptor::of(media::LAYER_GZIP, b"")
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;
    use crate::unpack::{InMemory, hostile};

    #[tokio::test]
    async fn stored_archives_are_rejected_like_layers() {
        for case in hostile::archives() {
            let name = case.name;
            let pieces = stream::iter([Ok::<_, io::Error>(Bytes::from(case.bytes.clone()))]);
            let stored = store(pieces, tempfile::tempfile().unwrap()).await;
            let (file, stored) = stored.unwrap();
            assert!(stored.is_gzip, "{name}");
            let limits = Limits::default();
            let unpacked = unpack(file, stored.descriptor, limits, InMemory::default()).await;
            case.check(match unpacked {
                Ok((files, _)) => Ok(files),
                Err(ArchiveFileError::Content(error)) => Err(error),
                Err(ArchiveFileError::Storage(error)) => panic!("{name}: {error}"),
            });
        }
    }
}
