//! One copy of a content on disk: its files, and what was found out about it, as a sealed file (content::sealed_file).
//! Not here: which copies there are (content::store).

use std::io;
use std::path::Path;

use crate::reconcile::content::sealed_file::{
    FilePlace, FinishedFile, IndexDecoder, Seal, SealedFile, SealedFileWriter, damaged,
    encode_bytes, encode_number,
};

/// Kind and version of the file, for its seal.
const PURPOSE: &str = "content 2";
/// The longest index that is read, in bytes: 20,000 files with 512 KiB of paths need less than 2 MiB.
const INDEX: u64 = 4 << 20;

/// What was found out about a content when it was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) struct Summary {
    /// Bytes of all files.
    pub(in crate::reconcile) bytes: u64,
    /// What parsing it takes, in bytes of memory.
    pub(in crate::reconcile) weight: u64,
}

/// One file, by where it lies in the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct StoredFile {
    pub(in crate::reconcile) path: String,
    pub(in crate::reconcile) place: FilePlace,
}

struct Index {
    summary: Summary,
    files: Vec<StoredFile>,
}

impl Index {
    /// The summary, then each file as its place and path.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        encode_number(&mut out, self.summary.bytes);
        encode_number(&mut out, self.summary.weight);
        for StoredFile { path, place } in &self.files {
            place.encode(&mut out);
            encode_bytes(&mut out, path.as_bytes());
        }
        out
    }

    /// `None` if it was not written so.
    fn decode(encoded: &[u8]) -> Option<Self> {
        let mut from = IndexDecoder::new(encoded);
        let summary = Summary {
            bytes: from.number()?,
            weight: from.number()?,
        };
        let mut files = Vec::new();
        while !from.is_empty() {
            files.push(StoredFile {
                place: from.place()?,
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

/// Completes a copy with these files.
pub(super) fn finish(
    writer: SealedFileWriter,
    files: Vec<StoredFile>,
    summary: Summary,
    (name, key): (&str, &[u8]),
) -> io::Result<FinishedFile> {
    writer.finish(&Index { summary, files }.encode(), seal(name, key))
}

/// A copy that is sealed by us.
pub(in crate::reconcile) struct StoredContent {
    file: SealedFile,
    index: Index,
}

impl StoredContent {
    /// Opens a copy and reads its index; an error if it is not just what was written under that name with this key.
    pub(in crate::reconcile) fn open(path: &Path, name: &str, key: &[u8]) -> io::Result<Self> {
        let (file, index) = SealedFile::open(path, seal(name, key), INDEX)?;
        Ok(Self {
            file,
            index: Index::decode(&index).ok_or_else(damaged)?,
        })
    }

    /// What was found out about it.
    pub(in crate::reconcile) fn summary(&self) -> Summary {
        self.index.summary
    }

    /// Its files.
    pub(in crate::reconcile) fn files(&self) -> &[StoredFile] {
        &self.index.files
    }

    /// The bytes of a file, if they are those that were written.
    pub(in crate::reconcile) fn read(&mut self, place: &FilePlace) -> io::Result<Vec<u8>> {
        self.file.read(place)
    }

    /// From now on it counts as used.
    pub(in crate::reconcile) fn touch(&self) -> io::Result<()> {
        self.file.touch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_decoding_fail_badly() {
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
                place: FilePlace {
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
