//! A layer as a blob. One pass over the bytes writes the tar, compresses it, and computes both
//! digests, with constant memory.

use std::collections::BTreeSet;
use std::io::{self, Write};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::reference::Digest;
use bytes::Bytes;
use tempfile::NamedTempFile;

use super::archive::{EntryError, TarWriter, refused};
use super::gzip::Gzip;
use crate::blob::{Blob, BlobContent, FilePart};
use crate::hash::Hasher;
use crate::manifest::Descriptor;
use crate::media;
use crate::unpack::check_path;

/// Maximum size in bytes of a layer that is kept in memory.
const IN_MEMORY: usize = 4 << 20;

/// A layer and the digest of its uncompressed tar.
pub(super) struct Layer {
    pub(super) blob: Blob,
    pub(super) diff_id: Digest,
}

/// An archive that is compressed and hashed while it is written.
pub(super) struct LayerWriter(TarWriter<HashingWriter<Gzip<HashingWriter<Spool>>>>);

impl LayerWriter {
    pub(super) fn new(time: u64) -> Self {
        let spool = HashingWriter::new(Spool::Memory(Vec::new()));
        Self(TarWriter::new(HashingWriter::new(Gzip::new(spool)), time))
    }

    pub(super) fn folder(&mut self, path: &str) -> Result<(), Finding> {
        self.0
            .folder(path)
            .map_err(|error| entry_finding(path, error))
    }

    pub(super) fn file(
        &mut self,
        path: &str,
        size: u64,
        content: impl io::Read,
    ) -> Result<(), Finding> {
        self.0
            .file(path, size, content)
            .map_err(|error| entry_finding(path, error))
    }

    pub(super) fn finish(self) -> Result<Layer, Finding> {
        let tar = self.0.finish().map_err(|error| unwritable(&error))?;
        let diff_id = tar.hash.finish();
        let mut sent = tar.inner.finish().map_err(|error| unwritable(&error))?;
        sent.inner.flush().map_err(|error| unwritable(&error))?;
        let descriptor = Descriptor {
            digest: sent.hash.finish(),
            size: sent.count,
            ..Descriptor::of(media::LAYER_GZIP, b"")
        };
        let content = match sent.inner {
            Spool::Memory(bytes) => BlobContent::Memory(Bytes::from(bytes)),
            Spool::File(file) => BlobContent::File(FilePart::temporary(file.into_temp_path())),
        };
        Ok(Layer {
            blob: Blob {
                descriptor,
                content,
            },
            diff_id,
        })
    }
}

/// Returns a layer of `files` and their parent folders, sorted by path.
pub(super) fn of_files(files: &Files, time: u64) -> Result<Layer, Finding> {
    let mut paths = BTreeSet::new();
    for path in files.keys() {
        check_path(path).map_err(|why| refused(path, why))?;
        paths.insert(path.as_str());
        let mut rest = path.as_str();
        while let Some((folder, _)) = rest.rsplit_once('/') {
            if files.contains_key(folder) {
                return Err(refused(path, "is inside a path that is a file"));
            }
            paths.insert(folder);
            rest = folder;
        }
    }
    let mut layer = LayerWriter::new(time);
    for path in paths {
        match files.get(path) {
            Some(content) => layer.file(path, content.len() as u64, content.as_slice())?,
            None => layer.folder(path)?,
        }
    }
    layer.finish()
}

fn entry_finding(path: &str, error: EntryError) -> Finding {
    match error {
        EntryError::Path(finding) => finding,
        EntryError::Read(error) => Finding::error(
            codes::usage::FILE_UNREADABLE,
            format!("`{path}` cannot be read: {error}"),
        )
        .in_file(path)
        .hint("build again when no other program writes to it"),
        EntryError::Write(error) => unwritable(&error),
    }
}

fn unwritable(error: &io::Error) -> Finding {
    Finding::error(
        codes::usage::FILE_UNWRITABLE,
        format!("cannot write a layer to a temporary file: {error}"),
    )
    .hint("free space in the folder for temporary files, or set TMPDIR to another folder")
}

/// Writer that counts and hashes all bytes that are written.
struct HashingWriter<W> {
    inner: W,
    hash: Hasher,
    count: u64,
}

impl<W> HashingWriter<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hash: Hasher::new(),
            count: 0,
        }
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Buffer in memory. If the content exceeds [`IN_MEMORY`], the bytes are moved to a temporary file.
enum Spool {
    Memory(Vec<u8>),
    File(NamedTempFile),
}

impl Write for Spool {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if let Self::Memory(bytes) = self {
            if bytes.len() + buffer.len() <= IN_MEMORY {
                bytes.extend_from_slice(buffer);
                return Ok(buffer.len());
            }
            let mut file = tempfile::Builder::new()
                .prefix(".kubectl-bundle-")
                .tempfile()?;
            file.write_all(bytes)?;
            *self = Self::File(file);
        }
        match self {
            Self::Memory(_) => Ok(0),
            Self::File(file) => file.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => file.flush(),
        }
    }
}
