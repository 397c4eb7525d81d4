//! A file of several parts with a sealed index. The file contains the parts, the index, the length
//! of the index, and an HMAC over the index. Reading needs memory only for the index and one part.
//! Each part is compared with its hash when it is read.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bundle_oci::unpack::FileSink;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// Length of the HMAC at the end, in bytes.
const SEAL_BYTES: usize = 32;
/// Length of an encoded number, in bytes. Numbers are in the index, and the length of the index is
/// a number before the HMAC.
const NUMBER_BYTES: usize = 8;

/// Location of a part in its file, and the hash of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) struct FileLocation {
    pub(in crate::reconcile) offset: u64,
    /// Length of the part, in bytes.
    pub(in crate::reconcile) length: u64,
    pub(in crate::reconcile) hash: [u8; 32],
}

impl FileLocation {
    /// Appends the location to an index.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        encode_number(out, self.offset);
        encode_number(out, self.length);
        out.extend(self.hash);
    }
}

/// Appends a number to an index.
pub(super) fn encode_number(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_be_bytes());
}

/// Appends bytes and their length to an index.
pub(super) fn encode_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    encode_number(out, bytes.len() as u64);
    out.extend(bytes);
}

/// A reader of an index. Each method returns `None` if the bytes do not have the expected encoding.
pub(super) struct IndexDecoder<'a>(&'a [u8]);

impl<'a> IndexDecoder<'a> {
    pub(super) fn new(index: &'a [u8]) -> Self {
        Self(index)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn part(&mut self, length: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(part)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(
            self.part(NUMBER_BYTES)?.try_into().ok()?,
        ))
    }

    pub(super) fn location(&mut self) -> Option<FileLocation> {
        Some(FileLocation {
            offset: self.number()?,
            length: self.number()?,
            hash: self.part(32)?.try_into().ok()?,
        })
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.part(length)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// The HMAC key of a seal, and the texts that the seal covers in addition to the index.
#[derive(Clone, Copy)]
pub(in crate::reconcile) struct Seal<'a> {
    /// Kind and version of the file.
    pub(super) purpose: &'static str,
    /// Identity of the content that the file contains.
    pub(super) name: &'a str,
    pub(super) key: &'a [u8],
}

impl Seal<'_> {
    fn mac(&self, index: &[u8]) -> Hmac<Sha256> {
        self.begin().chain_update(index)
    }

    /// Starts an HMAC over `purpose` and `name`. The caller adds the index.
    fn begin(&self) -> Hmac<Sha256> {
        // HMAC accepts keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key)
            .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
        for part in [self.purpose.as_bytes(), b"\0", self.name.as_bytes(), b"\0"] {
            mac.update(part);
        }
        mac
    }
}

/// A sealed file that is being written. Dropping this value before [`SealedFileWriter::finish`]
/// removes the file.
pub(in crate::reconcile) struct SealedFileWriter {
    file: BufWriter<File>,
    unfinished: UnfinishedFile,
    begin: u64,
    end: u64,
    hash: Sha256,
}

/// A file that is removed on drop, unless it was renamed.
struct UnfinishedFile(Option<PathBuf>);

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            fs_err::remove_file(path).ok();
        }
    }
}

/// A complete sealed file that does not have its final name yet.
pub(in crate::reconcile) struct FinishedFile {
    file: File,
    unfinished: UnfinishedFile,
}

impl SealedFileWriter {
    /// Creates a new unfinished file in `folder`.
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
            unfinished: UnfinishedFile(Some(path)),
            begin: 0,
            end: 0,
            hash: Sha256::new(),
        })
    }

    /// Reads a part that was written before.
    pub(in crate::reconcile) fn read(&mut self, location: &FileLocation) -> io::Result<Vec<u8>> {
        self.file.flush()?;
        read(self.file.get_mut(), location)
    }

    /// Writes the index, its length and the seal.
    pub(super) fn finish(mut self, index: &[u8], seal: Seal<'_>) -> io::Result<FinishedFile> {
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(index)?;
        self.file.write_all(&(index.len() as u64).to_be_bytes())?;
        let mac = seal.mac(index).finalize().into_bytes();
        self.file.write_all(&mac)?;
        self.file.flush()?;
        let Self {
            file, unfinished, ..
        } = self;
        Ok(FinishedFile {
            file: file.into_inner().map_err(io::IntoInnerError::into_error)?,
            unfinished,
        })
    }
}

impl Write for SealedFileWriter {
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

impl FileSink for SealedFileWriter {
    type File = FileLocation;

    fn end_file(&mut self) -> io::Result<FileLocation> {
        let location = FileLocation {
            offset: self.begin,
            length: self.end - self.begin,
            hash: self.hash.finalize_reset().into(),
        };
        self.begin = self.end;
        Ok(location)
    }
}

impl FinishedFile {
    /// Returns the size of the file in bytes.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Renames the file to `path`. An existing file at this path is replaced.
    pub(super) fn rename(mut self, path: &Path) -> io::Result<()> {
        if let Some(from) = &self.unfinished.0 {
            fs_err::rename(from, path)?;
        }
        self.unfinished.0 = None;
        Ok(())
    }
}

/// Reads the end of a file: the length of the index, and the seal. Then seeks to the beginning of
/// the index. Fails if the index has more than `most` bytes.
fn footer(file: &mut File, most: u64) -> io::Result<(u64, ValidSeal)> {
    let size = file.metadata()?.len();
    let footer = (NUMBER_BYTES + SEAL_BYTES) as u64;
    let at = size.checked_sub(footer).ok_or_else(damaged)?;
    file.seek(SeekFrom::Start(at))?;
    let (mut length, mut sealed) = ([0; NUMBER_BYTES], [0; SEAL_BYTES]);
    file.read_exact(&mut length)?;
    file.read_exact(&mut sealed)?;
    let length = u64::from_be_bytes(length);
    let start = at.checked_sub(length).ok_or_else(damaged)?;
    if length > most {
        return Err(damaged());
    }
    file.seek(SeekFrom::Start(start))?;
    Ok((length, ValidSeal(sealed)))
}

/// A seal that is valid for the index of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) struct ValidSeal([u8; SEAL_BYTES]);

impl ValidSeal {
    /// Reads the seal of the file at `path`, and checks that it is valid for the index. The index
    /// is not held in memory. Fails if the seal is invalid, or if the index has more than `most`
    /// bytes.
    pub(super) fn read(path: &Path, seal: Seal<'_>, most: u64) -> io::Result<Self> {
        let mut file = fs_err::File::open(path)?.into_file();
        let (length, found) = footer(&mut file, most)?;
        let mut mac = MacWriter(seal.begin());
        io::copy(&mut file.take(length), &mut mac)?;
        found.check(mac.0)?;
        Ok(found)
    }

    /// Returns true if this is the seal of `index` with the key and the texts of `seal`.
    pub(super) fn covers(&self, seal: Seal<'_>, index: &[u8]) -> bool {
        self.check(seal.mac(index)).is_ok()
    }

    fn check(&self, mac: Hmac<Sha256>) -> io::Result<()> {
        mac.verify_slice(&self.0)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "its seal is invalid"))
    }
}

/// A writer that computes the HMAC of the written bytes.
struct MacWriter(Hmac<Sha256>);

impl Write for MacWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An open file whose seal is valid for its index.
pub(in crate::reconcile) struct SealedFile(File);

impl SealedFile {
    /// Opens the file at `path`, and returns the file with its index. Fails if the seal is invalid,
    /// or if the index has more than `most` bytes.
    pub(super) fn open(path: &Path, seal: Seal<'_>, most: u64) -> io::Result<(Self, Vec<u8>)> {
        let mut file = fs_err::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)?
            .into_file();
        let (length, found) = footer(&mut file, most)?;
        let mut index = Vec::new();
        (&mut file).take(length).read_to_end(&mut index)?;
        found.check(seal.mac(&index))?;
        Ok((Self(file), index))
    }

    /// Reads a part of the file. Fails if the bytes were changed.
    pub(super) fn read(&mut self, location: &FileLocation) -> io::Result<Vec<u8>> {
        read(&mut self.0, location)
    }

    /// Sets the time of last use (the modification time of the file) to now.
    pub(super) fn touch(&self) -> io::Result<()> {
        self.0.set_modified(SystemTime::now())
    }
}

/// Returns the error for an index that cannot be decoded.
pub(super) fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its index is damaged")
}

fn read(file: &mut File, location: &FileLocation) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(location.offset))?;
    let mut bytes = Vec::with_capacity(usize::try_from(location.length).unwrap_or_default());
    file.take(location.length).read_to_end(&mut bytes)?;
    if Sha256::digest(&bytes)[..] == location.hash[..] {
        Ok(bytes)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a file in the cache was changed",
        ))
    }
}
