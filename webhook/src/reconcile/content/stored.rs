//! One copy of a content on disk: the bytes of its files one after another, then an index of them, the index's length, and a seal over the index. Written and
//! read with constant memory; each file is checked against its hash in the index when it is read.
//! Not here: which copies there are (content::store).

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bundle_oci::unpack::FileSink;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// Length of the seal that each copy ends with.
const SEAL: usize = 32;
/// Length of the index's length before it.
const LENGTH: usize = 8;
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

/// Where the bytes of a file are, and what they hash to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) struct FilePlace {
    offset: u64,
    pub(in crate::reconcile) length: u64,
    hash: [u8; 32],
}

struct Index {
    summary: Summary,
    files: Vec<StoredFile>,
}

impl Index {
    /// The summary, then each file as offset, length, hash, length of its path and path; numbers as eight bytes.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Summary { bytes, weight } = self.summary;
        out.extend([bytes, weight].map(u64::to_be_bytes).concat());
        for StoredFile { path, place } in &self.files {
            out.extend([place.offset, place.length].map(u64::to_be_bytes).concat());
            out.extend(place.hash);
            out.extend((path.len() as u64).to_be_bytes());
            out.extend(path.as_bytes());
        }
        out
    }

    /// `None` if it was not written so.
    fn decode(mut encoded: &[u8]) -> Option<Self> {
        fn part<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
            let (part, rest) = from.split_at_checked(length)?;
            *from = rest;
            Some(part)
        }
        fn number(from: &mut &[u8]) -> Option<u64> {
            Some(u64::from_be_bytes(part(from, LENGTH)?.try_into().ok()?))
        }
        let from = &mut encoded;
        let summary = Summary {
            bytes: number(from)?,
            weight: number(from)?,
        };
        let mut files = Vec::new();
        while !from.is_empty() {
            let (offset, length) = (number(from)?, number(from)?);
            let hash = part(from, 32)?.try_into().ok()?;
            let path = usize::try_from(number(from)?).ok()?;
            files.push(StoredFile {
                path: String::from_utf8(part(from, path)?.to_vec()).ok()?,
                place: FilePlace {
                    offset,
                    length,
                    hash,
                },
            });
        }
        Some(Self { summary, files })
    }
}

/// A copy being written. Its file is removed if it is dropped before it is finished.
pub(in crate::reconcile) struct ContentWriter {
    file: BufWriter<File>,
    unfinished: Unfinished,
    begin: u64,
    end: u64,
    hash: Sha256,
}

/// A file that goes away unless it is renamed.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            fs_err::remove_file(path).ok();
        }
    }
}

/// A copy that is complete and has no name yet.
pub(in crate::reconcile) struct FinishedCopy {
    file: File,
    unfinished: Unfinished,
}

impl ContentWriter {
    /// Begins a copy in this folder.
    pub(in crate::reconcile) fn create(folder: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{number}.unfinished", std::process::id()));
        let file = fs_err::OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)?;
        Ok(Self {
            file: BufWriter::new(file.into_file()),
            unfinished: Unfinished(Some(path)),
            begin: 0,
            end: 0,
            hash: Sha256::new(),
        })
    }

    /// The bytes of a file that was written.
    pub(in crate::reconcile) fn read(&mut self, place: &FilePlace) -> io::Result<Vec<u8>> {
        self.file.flush()?;
        read(self.file.get_mut(), place)
    }

    /// Writes index and seal.
    pub(in crate::reconcile) fn finish(
        mut self,
        files: Vec<StoredFile>,
        summary: Summary,
        name: &str,
        key: &[u8],
    ) -> io::Result<FinishedCopy> {
        let index = Index { summary, files }.encode();
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&index)?;
        self.file.write_all(&(index.len() as u64).to_be_bytes())?;
        let seal = seal(key, name, &index).finalize().into_bytes();
        self.file.write_all(&seal)?;
        self.file.flush()?;
        let Self {
            file, unfinished, ..
        } = self;
        Ok(FinishedCopy {
            file: file.into_inner().map_err(io::IntoInnerError::into_error)?,
            unfinished,
        })
    }
}

impl Write for ContentWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.end += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl FileSink for ContentWriter {
    type File = FilePlace;

    fn end_file(&mut self) -> io::Result<FilePlace> {
        let place = FilePlace {
            offset: self.begin,
            length: self.end - self.begin,
            hash: self.hash.finalize_reset().into(),
        };
        self.begin = self.end;
        Ok(place)
    }
}

impl FinishedCopy {
    /// How long it is.
    pub(in crate::reconcile) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Gives it its name.
    pub(in crate::reconcile) fn rename(mut self, path: &Path) -> io::Result<()> {
        if let Some(from) = &self.unfinished.0 {
            fs_err::rename(from, path)?;
        }
        self.unfinished.0 = None;
        Ok(())
    }
}

/// A copy that is sealed by us.
pub(in crate::reconcile) struct StoredContent {
    file: File,
    index: Index,
}

impl StoredContent {
    /// Opens a copy and reads its index; an error if it is not just what was written under that name with this key.
    pub(in crate::reconcile) fn open(path: &Path, name: &str, key: &[u8]) -> io::Result<Self> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its end is damaged");
        let mut file = fs_err::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)?
            .into_file();
        let size = file.metadata()?.len();
        let footer = (LENGTH + SEAL) as u64;
        let at = size.checked_sub(footer).ok_or_else(damaged)?;
        file.seek(SeekFrom::Start(at))?;
        let (mut length, mut sealed) = ([0; LENGTH], [0; SEAL]);
        file.read_exact(&mut length)?;
        file.read_exact(&mut sealed)?;
        let length = u64::from_be_bytes(length);
        let start = at.checked_sub(length).ok_or_else(damaged)?;
        if length > INDEX {
            return Err(damaged());
        }
        file.seek(SeekFrom::Start(start))?;
        let mut index = Vec::new();
        (&mut file).take(length).read_to_end(&mut index)?;
        seal(key, name, &index)
            .verify_slice(&sealed)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "its seal is not ours"))?;
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
        read(&mut self.file, place)
    }

    /// From now on it counts as used.
    pub(in crate::reconcile) fn touch(&self) -> io::Result<()> {
        self.file.set_modified(SystemTime::now())
    }
}

fn read(file: &mut File, place: &FilePlace) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(place.offset))?;
    let mut bytes = Vec::with_capacity(usize::try_from(place.length).unwrap_or_default());
    file.take(place.length).read_to_end(&mut bytes)?;
    if Sha256::digest(&bytes)[..] == place.hash[..] {
        Ok(bytes)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a file in the cache is not what was written",
        ))
    }
}

fn seal(key: &[u8], name: &str, index: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
    mac.update(b"content 2\0");
    mac.update(name.as_bytes());
    mac.update(b"\0");
    mac.update(index);
    mac
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
