//! Reads a file for signing and verification of blobs, of any size.

use std::fs::Metadata;
use std::io::Read as _;
use std::path::Path;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use bundle_oci::hash::Hasher;
use bundle_trust::verify::Content;

use crate::failure::Outcome;
use crate::system::files;

/// Maximum size in bytes of a file that is kept in memory. Keys that sign the content instead of
/// its digest need the file in memory.
const MAX_IN_MEMORY: u64 = 32 << 20;
/// Maximum size in bytes of a JSON file that is kept in memory. `sign` must read a whole JSON file
/// to detect that it is the payload of an image signature.
const MAX_PAYLOAD: u64 = 128 << 20;
/// Number of bytes in one read.
const READ_SIZE: usize = 1 << 20;

/// A file with its digest.
pub(super) struct HashedFile {
    /// SHA-256.
    pub(super) digest: Digest,
    /// Content of the file. For a file that is too large for memory, this is only the beginning.
    bytes: Vec<u8>,
    length: u64,
}

/// Returns `true` if a file with this length and these first bytes is kept in memory.
fn is_held_in_memory(length: u64, beginning: &[u8]) -> bool {
    let text = beginning.trim_ascii_start();
    let json = text.is_empty() || text.starts_with(b"{") || text.starts_with(b"\xef\xbb\xbf");
    length <= if json { MAX_PAYLOAD } else { MAX_IN_MEMORY }
}

impl HashedFile {
    /// Reads a whole file. Returns an error if the file changes during the read.
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let unreadable = |error| files::unreadable(&path.display().to_string(), &error);
        let refused = |why: &str, hint: &str| {
            Finding::error(codes::usage::FILE_UNREADABLE, why)
                .in_file(path.display().to_string())
                .hint(hint)
        };
        // The type of the file is checked before the file is opened. Opening a pipe blocks until
        // another process writes to it.
        let named = fs_err::metadata(path).map_err(unreadable)?;
        if !named.is_file() {
            let hint = "--bundle requires a regular file, such as an archive of `save`";
            return Err(
                refused("not a regular file, but a folder, a pipe or a device", hint).into(),
            );
        }
        let mut file = fs_err::File::open(path).map_err(unreadable)?;
        let before = file.metadata().map_err(unreadable)?;
        let mut bytes = Vec::new();
        let mut kept = true;
        let mut hasher = Hasher::new();
        let mut piece = vec![0; READ_SIZE];
        let mut length = 0_u64;
        loop {
            let read = match file.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(error)),
            };
            length += read as u64;
            if length > before.len() {
                break;
            }
            hasher.update(&piece[..read]);
            if kept {
                bytes.extend_from_slice(&piece[..read]);
                kept = is_held_in_memory(before.len(), &bytes);
            }
        }
        let after = file.metadata().map_err(unreadable)?;
        let path_now = fs_err::metadata(path).map_err(unreadable)?;
        if length != before.len()
            || !is_unchanged(&before, &after)
            || !is_unchanged(&before, &path_now)
        {
            let hint = "wait until the program that writes the file has finished";
            return Err(refused("the file changed while it was read", hint).into());
        }
        if length == 0 {
            let hint = "check that the path is correct";
            return Err(refused("the file is empty", hint).into());
        }
        Ok(Self {
            digest: hasher.finish(),
            bytes,
            length,
        })
    }

    /// Returns the content for signing and verification.
    pub(super) fn content(&self) -> Content<'_> {
        Content {
            digest: &self.digest,
            bytes: (self.length <= MAX_IN_MEMORY).then_some(self.bytes.as_slice()),
        }
    }

    /// Returns the bytes that determine the type of the file: the whole content if the file is kept
    /// in memory, otherwise only the beginning.
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns `true` if both metadata are from the same file, and the file was not modified between
/// them.
fn is_unchanged(one: &Metadata, other: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let named = |it: &Metadata| (it.dev(), it.ino(), it.ctime(), it.ctime_nsec());
        if named(one) != named(other) {
            return false;
        }
    }
    one.len() == other.len() && one.modified().ok() == other.modified().ok()
}
