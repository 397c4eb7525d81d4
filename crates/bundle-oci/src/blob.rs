//! A blob with its descriptor. The bytes of the blob are in memory, in a part of a file, or in a
//! remote source.

use std::fmt;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tempfile::TempPath;
use tokio::sync::mpsc;

use crate::hash::Hasher;
use crate::limits::format_size;
use crate::manifest::Descriptor;

/// Stream of the bytes of a blob.
pub type ByteStream = BoxStream<'static, Result<Bytes, Finding>>;

/// Number of bytes in one read of a file.
const PIECE_BYTES: usize = 1 << 20;
const BUFFERED_PIECES: usize = 2;

/// A blob with its descriptor. Two blobs are equal if their descriptors are equal, because the
/// digest identifies the bytes.
#[derive(Debug, Clone)]
pub struct Blob {
    /// Media type, digest and size.
    pub descriptor: Descriptor,
    /// Location of the bytes.
    pub content: BlobContent,
}

/// Location of the bytes of a blob. Cheap to clone.
#[derive(Debug, Clone)]
pub enum BlobContent {
    /// Bytes in memory.
    Memory(Bytes),
    /// Part of a file.
    File(FilePart),
    /// Remote content, such as a blob in another registry.
    Remote(Arc<dyn OpenBlob>),
}

/// Remote content. It can be opened more than once, for example after a failed transfer.
pub trait OpenBlob: fmt::Debug + Send + Sync {
    /// Opens the content and returns its bytes from `offset` to the end.
    fn open(&self, offset: u64) -> ByteStream;
}

/// A part of a file: the whole file, or an entry of an archive.
#[derive(Debug, Clone)]
pub struct FilePart {
    file: Arc<FileOwner>,
    offset: u64,
}

#[derive(Debug)]
enum FileOwner {
    User(PathBuf),
    /// A temporary file, which is removed when the last blob that refers to it is dropped.
    Temporary(TempPath),
}

impl FilePart {
    /// Refers to the part of the file at `path` that begins at `offset`. The descriptor of the blob
    /// contains the length of the part.
    pub fn new(path: impl Into<PathBuf>, offset: u64) -> Self {
        Self {
            file: Arc::new(FileOwner::User(path.into())),
            offset,
        }
    }

    /// Refers to a whole temporary file. The file is removed when the last clone is dropped.
    pub fn temporary(path: TempPath) -> Self {
        Self {
            file: Arc::new(FileOwner::Temporary(path)),
            offset: 0,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        match &*self.file {
            FileOwner::User(path) => path,
            FileOwner::Temporary(path) => path,
        }
    }

    /// Returns the offset at which the part begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn reader(&self, offset: u64, length: u64) -> io::Result<impl Read + Send + use<>> {
        let mut file = fs_err::File::open(self.path())?;
        let from = self
            .offset
            .checked_add(offset)
            .ok_or_else(|| io::Error::other("the offset is larger than a file can be"))?;
        if from > 0 {
            file.seek(SeekFrom::Start(from))?;
        }
        Ok(file.take(length))
    }
}

impl Blob {
    /// Returns a blob of `bytes` with this media type.
    pub fn new(media_type: &str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            descriptor: Descriptor::of(media_type, &bytes),
            content: BlobContent::Memory(bytes),
        }
    }

    /// Returns a blob in a part of a file.
    pub fn file(descriptor: Descriptor, part: FilePart) -> Self {
        Self {
            descriptor,
            content: BlobContent::File(part),
        }
    }

    /// Returns the bytes from `offset` to the end.
    ///
    /// The stream has exactly the length in the descriptor, or ends in an error. The stream does
    /// not check the digest of the bytes: the caller has to check it.
    pub fn open(&self, offset: u64) -> ByteStream {
        let length = self.descriptor.size.saturating_sub(offset);
        let digest = self.descriptor.digest.clone();
        let pieces = match &self.content {
            BlobContent::Memory(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = bytes.slice(from.min(bytes.len())..);
                stream::iter((!rest.is_empty()).then_some(Ok(rest))).boxed()
            }
            BlobContent::File(part) => file_pieces(part.clone(), offset, length),
            BlobContent::Remote(source) => source.open(offset),
        };
        exact_length(pieces, length, digest)
    }

    /// Returns a blocking reader. Returns an error for remote content.
    pub fn reader(&self) -> io::Result<Box<dyn Read + Send>> {
        match &self.content {
            BlobContent::Memory(bytes) => Ok(Box::new(io::Cursor::new(bytes.clone()))),
            BlobContent::File(part) => Ok(Box::new(part.reader(0, self.descriptor.size)?)),
            BlobContent::Remote(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the content is not on this machine",
            )),
        }
    }

    /// Returns the blob with content in memory or in a file. Remote content is written to a
    /// temporary file, and its digest is checked.
    pub async fn into_local(self) -> Result<Self, Finding> {
        let unwritable = |error: io::Error| {
            Finding::error(
                codes::usage::FILE_UNWRITABLE,
                format!("cannot write a layer to a temporary file: {error}"),
            )
            .hint("free space in the folder for temporary files, or set TMPDIR to another folder")
        };
        let mut file = match self.content {
            BlobContent::Remote(_) => {
                let mut builder = tempfile::Builder::new();
                let made = builder.prefix(".kubectl-bundle-").tempfile();
                Some(made.map_err(unwritable)?)
            }
            _ => None,
        };
        let mut hash = Hasher::new();
        let mut pieces = self.open(0);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            hash.update(&piece);
            if let Some(file) = &mut file {
                file.write_all(&piece).map_err(unwritable)?;
            }
        }
        let found = hash.finish();
        if found != self.descriptor.digest {
            return Err(changed_content(&self.descriptor.digest, found.as_str()));
        }
        Ok(match file {
            Some(file) => {
                let part = FilePart::temporary(file.into_temp_path());
                Self::file(self.descriptor, part)
            }
            None => self,
        })
    }

    /// Returns all bytes of a small blob. Returns an error if the blob has more than `limit` bytes.
    pub async fn bytes(&self, limit: u64) -> Result<Bytes, Finding> {
        if let BlobContent::Memory(bytes) = &self.content {
            return Ok(bytes.clone());
        }
        if self.descriptor.size > limit {
            return Err(Finding::error(
                codes::registry::TOO_LARGE,
                format!(
                    "{} has {}, and the limit is {}",
                    self.descriptor.digest,
                    format_size(self.descriptor.size),
                    format_size(limit)
                ),
            ));
        }
        let mut all = Vec::new();
        let mut pieces = self.open(0);
        while let Some(piece) = pieces.next().await {
            all.extend_from_slice(&piece?);
        }
        let found = Digest::of(&all);
        if found == self.descriptor.digest {
            Ok(all.into())
        } else {
            Err(changed_content(&self.descriptor.digest, &found.to_string()))
        }
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.descriptor == other.descriptor
    }
}

impl Eq for Blob {}

/// Returns the finding for content that does not match its digest.
pub(crate) fn changed_content(expected: &Digest, found: &str) -> Finding {
    Finding::error(
        codes::registry::DIGEST_MISMATCH,
        format!("the content for digest {expected} differs: {found}"),
    )
    .hint("the content changed after it was read; build or pull it again")
}

/// Returns `length` bytes of a file from `offset` on. A blocking thread reads the file, and reads
/// the next pieces before the consumer requests them.
fn file_pieces(part: FilePart, offset: u64, length: u64) -> ByteStream {
    stream::once(async move { read_ahead(part, offset, length) })
        .flatten()
        .boxed()
}

fn read_ahead(part: FilePart, offset: u64, length: u64) -> ByteStream {
    let (pieces, source) = mpsc::channel(BUFFERED_PIECES);
    tokio::task::spawn_blocking(move || {
        let sent = part.reader(offset, length).and_then(|mut reader| {
            let mut left = length;
            while left > 0 {
                let next = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
                let mut piece = Vec::with_capacity(next);
                let read = reader.by_ref().take(next as u64).read_to_end(&mut piece)?;
                left -= read as u64;
                // The receiver was dropped, or the file ended early. The receiver detects a short
                // file.
                if read == 0 || pieces.blocking_send(Ok(Bytes::from(piece))).is_err() {
                    return Ok(());
                }
            }
            Ok(())
        });
        if let Err(error) = sent {
            let finding = Finding::error(
                codes::usage::FILE_UNREADABLE,
                format!("cannot read `{}`: {error}", part.path().display()),
            );
            // The receiver was dropped, so the error is not needed.
            let _ = pieces.blocking_send(Err(finding));
        }
    });
    stream::unfold(source, |mut source| async move {
        source.recv().await.map(|piece| (piece, source))
    })
    .boxed()
}

/// Ends the stream after `length` bytes. Returns an error if the stream has fewer bytes.
fn exact_length(pieces: ByteStream, length: u64, digest: Digest) -> ByteStream {
    stream::unfold(Some((pieces, length)), move |state| {
        let digest = digest.clone();
        async move {
            let (mut pieces, left) = state?;
            if left == 0 {
                return None;
            }
            match pieces.next().await {
                Some(Ok(mut piece)) => {
                    piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - piece.len() as u64;
                    Some((Ok(piece), Some((pieces, left))))
                }
                Some(Err(finding)) => Some((Err(finding), None)),
                None => {
                    let short = format!("{left} bytes shorter than its declared size");
                    Some((Err(changed_content(&digest, &short)), None))
                }
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media;

    async fn read(blob: &Blob, offset: u64) -> Result<Vec<u8>, Finding> {
        let mut all = Vec::new();
        let mut pieces = blob.open(offset);
        while let Some(piece) = pieces.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn part_of_a_file_reads_like_the_same_bytes_in_memory() {
        let content: Vec<u8> = (0..=250).cycle().take(3 * PIECE_BYTES + 5).collect();
        let memory = Blob::new(media::LAYER_TAR, content.clone());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"before").unwrap();
        file.write_all(&content).unwrap();
        file.write_all(b"after").unwrap();
        let part = Blob::file(memory.descriptor.clone(), FilePart::new(file.path(), 6));
        assert_eq!(part, memory);
        for offset in [0, 1, PIECE_BYTES as u64, content.len() as u64] {
            let expected = &content[usize::try_from(offset).unwrap()..];
            assert_eq!(read(&memory, offset).await.unwrap(), expected);
            assert_eq!(read(&part, offset).await.unwrap(), expected);
        }
        assert_eq!(part.bytes(1 << 30).await.unwrap(), content);
        let small = part.bytes(10).await.unwrap_err();
        assert_eq!(small.code, codes::registry::TOO_LARGE);
        let mut whole = Vec::new();
        part.reader().unwrap().read_to_end(&mut whole).unwrap();
        assert_eq!(whole, content);
    }

    #[tokio::test]
    async fn truncated_missing_or_changed_file_is_an_error() {
        let blob = Blob::new(media::LAYER_TAR, "twelve bytes");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"twelve").unwrap();
        let part = Blob::file(blob.descriptor.clone(), FilePart::new(file.path(), 0));
        let short = read(&part, 0).await.unwrap_err();
        assert_eq!(short.code, codes::registry::DIGEST_MISMATCH);
        file.write_all(b" bites").unwrap();
        assert_eq!(read(&part, 0).await.unwrap(), b"twelve bites");
        let other = part.bytes(100).await.unwrap_err();
        assert_eq!(other.code, codes::registry::DIGEST_MISMATCH);
        drop(file);
        let gone = read(&part, 0).await.unwrap_err();
        assert_eq!(gone.code, codes::usage::FILE_UNREADABLE);
    }

    #[test]
    fn temporary_file_is_removed_with_its_last_blob() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let part = FilePart::temporary(file.into_temp_path());
        let path = part.path().to_owned();
        let other = part.clone();
        drop(part);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists());
    }
}
