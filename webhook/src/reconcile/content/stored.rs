//! The files of content on disk, and a summary of them, as a sealed file (`content::sealed_file`).

use std::io;
use std::path::Path;

use crate::reconcile::content::sealed_file::{
    FileLocation, FinishedFile, IndexDecoder, Seal, SealedFile, SealedFileWriter, damaged,
    encode_bytes, encode_number,
};

/// Kind and version of the sealed file. The seal covers this text.
const PURPOSE: &str = "content 2";
/// Maximum length of an index, in bytes. 20,000 files with a total path length of 512 KiB need less
/// than 2 MiB.
const MAX_INDEX_BYTES: u64 = 4 << 20;

/// Size of content, and memory that parsing needs. Both are computed when the content is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) struct Summary {
    /// Size of all files, in bytes.
    pub(in crate::reconcile) bytes: u64,
    /// Memory that parsing the files needs, in bytes.
    pub(in crate::reconcile) weight: u64,
}

/// One file of content, and its location in the cached copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct StoredFile {
    pub(in crate::reconcile) path: String,
    pub(in crate::reconcile) location: FileLocation,
}

struct Index {
    summary: Summary,
    files: Vec<StoredFile>,
}

impl Index {
    /// Encodes the summary, and then the location and the path of each file.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        encode_number(&mut out, self.summary.bytes);
        encode_number(&mut out, self.summary.weight);
        for StoredFile { path, location } in &self.files {
            location.encode(&mut out);
            encode_bytes(&mut out, path.as_bytes());
        }
        out
    }

    /// Decodes an index. Returns `None` if the encoding is invalid.
    fn decode(encoded: &[u8]) -> Option<Self> {
        let mut from = IndexDecoder::new(encoded);
        let summary = Summary {
            bytes: from.number()?,
            weight: from.number()?,
        };
        let mut files = Vec::new();
        while !from.is_empty() {
            files.push(StoredFile {
                location: from.location()?,
                path: from.text()?.to_owned(),
            });
        }
        Some(Self { summary, files })
    }
}

fn seal<'a>(name: &'a str, key: &'a [u8]) -> Seal<'a> {
    Seal {
        purpose: PURPOSE,
        name,
        key,
    }
}

/// Writes the index of these files and the seal, and finishes the copy.
pub(super) fn finish(
    writer: SealedFileWriter,
    files: Vec<StoredFile>,
    summary: Summary,
    (name, key): (&str, &[u8]),
) -> io::Result<FinishedFile> {
    writer.finish(&Index { summary, files }.encode(), seal(name, key))
}

/// A cached copy of content with a valid seal.
pub(in crate::reconcile) struct StoredContent {
    file: SealedFile,
    index: Index,
}

impl StoredContent {
    /// Opens a copy and reads its index. Fails if the copy was sealed with another name or another
    /// key, or if its index was changed.
    pub(in crate::reconcile) fn open(path: &Path, name: &str, key: &[u8]) -> io::Result<Self> {
        let (file, index) = SealedFile::open(path, seal(name, key), MAX_INDEX_BYTES)?;
        Ok(Self {
            file,
            index: Index::decode(&index).ok_or_else(damaged)?,
        })
    }

    /// Returns the size of the content, and the memory that parsing needs.
    pub(in crate::reconcile) fn summary(&self) -> Summary {
        self.index.summary
    }

    /// Returns the paths and locations of the files.
    pub(in crate::reconcile) fn files(&self) -> &[StoredFile] {
        &self.index.files
    }

    /// Reads a file of the content. Fails if the bytes were changed.
    pub(in crate::reconcile) fn read(&mut self, location: &FileLocation) -> io::Result<Vec<u8>> {
        self.file.read(location)
    }

    /// Sets the time of last use (the modification time of the file) to now.
    pub(in crate::reconcile) fn touch(&self) -> io::Result<()> {
        self.file.touch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_rejects_malformed_indexes() {
        for encoded in [&[0xff; 80][..], &[0; 15], &[0; 70]] {
            assert!(Index::decode(encoded).is_none());
        }
        let index = Index {
            summary: Summary {
                bytes: 3,
                weight: 4,
            },
            files: vec![StoredFile {
                path: "a/b".to_owned(),
                location: FileLocation {
                    offset: 1,
                    length: 2,
                    hash: [7; 32],
                },
            }],
        };
        let read = Index::decode(&index.encode()).unwrap();
        assert_eq!((read.summary, read.files), (index.summary, index.files));
    }
}
