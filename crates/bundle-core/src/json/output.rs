//! Length and SHA-256 hash of the JSON of a value. The JSON is never in memory as a whole: in JSON,
//! a control character needs up to six bytes, so the JSON can be six times as long as the value.

use std::io::{self, Write};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::reference::Digest;

/// Returns the length of the JSON of a value, in bytes.
pub fn length(value: &(impl Serialize + ?Sized)) -> usize {
    let mut counter = Counter {
        length: 0,
        limit: usize::MAX,
    };
    // Writing to this counter cannot fail.
    serde_json::to_writer(&mut counter, value).ok();
    counter.length
}

/// Returns `true` if the JSON of a value has more than `limit` bytes. The bytes after the limit are
/// not counted.
pub fn is_longer_than(value: &(impl Serialize + ?Sized), limit: usize) -> bool {
    let mut counter = Counter { length: 0, limit };
    serde_json::to_writer(&mut counter, value).is_err()
}

/// Returns the SHA-256 hash of the JSON of a value. The type of the value must be convertible to
/// JSON, for example a map with text keys.
pub fn sha256(value: &(impl Serialize + ?Sized)) -> [u8; 32] {
    let mut hash = Sha256::new();
    update_hash(&mut hash, value);
    hash.finalize().into()
}

/// Returns the length of the JSON of a value, in bytes, and its SHA-256 hash. Writes the JSON only
/// once. The type of the value must be convertible to JSON, as for [`sha256`].
pub fn length_and_sha256(value: &(impl Serialize + ?Sized)) -> (usize, [u8; 32]) {
    let mut hash = Sha256::new();
    let mut writer = HashWriter::new(&mut hash);
    // Writing to a hash cannot fail.
    serde_json::to_writer(&mut writer, value).ok();
    let length = writer.length;
    (length, hash.finalize().into())
}

/// Returns the digest of the JSON of a value. The type of the value must be convertible to JSON, as
/// for [`sha256`].
pub fn digest(value: &(impl Serialize + ?Sized)) -> Digest {
    Digest::from_hash(&sha256(value))
}

/// Adds the JSON of a value to a hash. The type of the value must be convertible to JSON, as for
/// [`sha256`].
pub fn update_hash(hash: &mut Sha256, value: &(impl Serialize + ?Sized)) {
    // Writing to a hash cannot fail.
    serde_json::to_writer(HashWriter::new(hash), value).ok();
}

/// Writer that counts the written bytes, and fails above a limit.
struct Counter {
    length: usize,
    limit: usize,
}

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length = self.length.saturating_add(bytes.len());
        if self.length > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writer that adds the written bytes to a hash, and counts them.
pub(crate) struct HashWriter<'h> {
    hash: &'h mut Sha256,
    length: usize,
}

impl<'h> HashWriter<'h> {
    pub(crate) fn new(hash: &'h mut Sha256) -> Self {
        Self { hash, length: 0 }
    }
}

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        self.length += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
