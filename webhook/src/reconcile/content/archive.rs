//! The archive of content for downloads: a gzipped tar, stored in parts as a sealed file
//! (`content::sealed_file`). A byte range can be read and checked without reading the other parts.
//! The bytes of the archive depend only on the files of the content.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use bundle_core::cancellation::Cancellation;
use bundle_core::reference::Digest;
use bundle_oci::hash::Hasher;
use bundle_oci::pack::{EntryError, TarWriter};
use bundle_oci::unpack::FileSink as _;
use flate2::{Compression, GzBuilder};

use crate::archives::BundleArchive;
use crate::reconcile::content::sealed_file::{
    FileLocation, FinishedFile, IndexDecoder, Seal, SealedFile, SealedFileWriter, damaged,
    encode_bytes,
};
use crate::reconcile::content::stored::StoredContent;

/// Kind and version of the sealed file. The seal covers this text. Increment the version if the
/// program creates other bytes for the same content. Otherwise a client could resume the download
/// of an old archive with bytes of a new archive.
const PURPOSE: &str = "archive 1";
/// Maximum length of an index, in bytes. An archive of 1 GiB has 16,384 parts, which need 48 bytes
/// each in the index.
const MAX_INDEX_BYTES: u64 = 1 << 20;
/// Length of each part except the last part, in bytes.
const PART: u64 = 64 << 10;
/// Memory for writing an archive, in bytes: compressor, buffers and paths. The memory for the
/// largest file is not included.
pub(in crate::reconcile) const WRITE_MEMORY: u64 = 4 << 20;
/// Modification time of all tar entries, in seconds since 1970.
const TIME: u64 = 0;

/// The name that a seal covers, and the HMAC key of the seal.
type SealName<'a> = (&'a str, &'a [u8]);

fn seal((name, key): SealName<'_>) -> Seal<'_> {
    Seal {
        purpose: PURPOSE,
        name,
        key,
    }
}

/// A writer that divides an archive into parts, and computes the digest of the whole archive.
struct PartWriter {
    file: SealedFileWriter,
    parts: Vec<FileLocation>,
    /// Number of bytes that were written to the current part.
    length: u64,
    hash: Hasher,
}

impl PartWriter {
    fn end_part(&mut self) -> io::Result<()> {
        if self.length > 0 {
            self.parts.push(self.file.end_file()?);
            self.length = 0;
        }
        Ok(())
    }
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = usize::try_from(PART - self.length).unwrap_or(bytes.len());
        let written = self.file.write(&bytes[..bytes.len().min(most)])?;
        self.hash.update(&bytes[..written]);
        self.length += written as u64;
        if self.length == PART {
            self.end_part()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes the archive of `content`. Holds one file of the content in memory at a time.
pub(super) fn write(
    content: &mut StoredContent,
    file: SealedFileWriter,
    name: SealName<'_>,
    cancellation: &Cancellation,
) -> io::Result<FinishedFile> {
    let mut files = content.files().to_vec();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let parts = PartWriter {
        file,
        parts: Vec::new(),
        length: 0,
        hash: Hasher::new(),
    };
    let gzip = GzBuilder::new().write(parts, Compression::default());
    let mut tar = TarWriter::new(gzip, TIME);
    let mut folders = BTreeSet::new();
    for file in files {
        if cancellation.is_cancelled_now() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        for (at, _) in file.path.match_indices('/') {
            if folders.insert(file.path[..at].to_owned()) {
                tar.folder(&file.path[..at]).map_err(entry_error)?;
            }
        }
        let bytes = content.read(&file.location)?;
        let size = bytes.len() as u64;
        tar.file(&file.path, size, bytes.as_slice())
            .map_err(entry_error)?;
    }
    let mut parts = tar.finish()?.finish()?;
    parts.end_part()?;
    let mut index = Vec::new();
    encode_bytes(&mut index, parts.hash.finish().as_str().as_bytes());
    for part in &parts.parts {
        part.encode(&mut index);
    }
    parts.file.finish(&index, seal(name))
}

fn entry_error(error: EntryError) -> io::Error {
    match error {
        EntryError::Path(finding) => io::Error::other(finding.message),
        EntryError::Read(error) | EntryError::Write(error) => error,
    }
}

/// An archive with a valid seal.
pub(in crate::reconcile) struct StoredArchive {
    file: SealedFile,
    digest: Digest,
    parts: Vec<FileLocation>,
}

impl StoredArchive {
    /// Opens an archive. Fails if the archive was sealed with another name or another key, or if
    /// its index was changed.
    pub(super) fn open(path: &Path, name: SealName<'_>) -> io::Result<Self> {
        let (file, index) = SealedFile::open(path, seal(name), MAX_INDEX_BYTES)?;
        Self::decode(file, &index).ok_or_else(damaged)
    }

    fn decode(file: SealedFile, index: &[u8]) -> Option<Self> {
        let mut from = IndexDecoder::new(index);
        let digest = from.text()?.parse().ok()?;
        let mut parts = Vec::new();
        while !from.is_empty() {
            parts.push(from.location()?);
        }
        Some(Self {
            file,
            digest,
            parts,
        })
    }

    /// Sets the time of last use (the modification time of the file) to now.
    pub(super) fn touch(&self) -> io::Result<()> {
        self.file.touch()
    }
}

impl BundleArchive for StoredArchive {
    fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.length).sum()
    }

    fn digest(&self) -> &Digest {
        &self.digest
    }

    fn read(&mut self, offset: u64) -> io::Result<Vec<u8>> {
        let index = usize::try_from(offset / PART).unwrap_or(usize::MAX);
        let part = self.parts.get(index).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut bytes = self.file.read(part)?;
        let skipped = usize::try_from(offset % PART).unwrap_or(usize::MAX);
        bytes.drain(..skipped.min(bytes.len()));
        Ok(bytes)
    }
}
