//! OCI layouts in a tar file. The offset of each entry is recorded when the archive is opened, so
//! readers read each blob directly from the tar file. A write produces a complete archive, or no
//! archive.

mod entries;
mod plan;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};

use crate::blob::FilePart;
use crate::layout;

pub use plan::ArchivePlan;

/// An open archive, with the offset and size of each of its files.
#[derive(Debug, Clone)]
pub struct Archive {
    path: PathBuf,
    entries: BTreeMap<String, EntryLocation>,
}

/// Offset and size of an entry's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryLocation {
    offset: u64,
    size: u64,
}

/// Returns `true` if the file begins with the header of a tar archive, or with the magic bytes of
/// gzip. [`Archive::open`] rejects a gzip file.
pub fn is_archive(path: &Path) -> bool {
    entries::is_tar(path).unwrap_or(false)
}

impl Archive {
    /// Reads the headers of all entries, but no content.
    ///
    /// Returns an error for entries other than regular files and folders, for duplicate names, and
    /// for an archive without the file `oci-layout`.
    pub fn open(path: &Path) -> Result<Self, Finding> {
        let bad = |why: &str| bad(path, why);
        let file = fs_err::File::open(path).map_err(|error| bad(&error.to_string()))?;
        let entries = entries::read(std::io::BufReader::with_capacity(16 << 10, file))
            .map_err(|error| bad(&error.to_string()))?;
        if !entries.contains_key(layout::LAYOUT_FILE) {
            return Err(bad("it has no file `oci-layout`"));
        }
        Ok(Self {
            path: path.to_owned(),
            entries,
        })
    }

    /// Returns the path of the archive.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content of an entry and its size in bytes.
    pub fn part(&self, name: &str) -> Option<(FilePart, u64)> {
        let entry = self.entries.get(name)?;
        Some((FilePart::new(&self.path, entry.offset), entry.size))
    }
}

fn bad(path: &Path, why: &str) -> Finding {
    Finding::error(
        codes::registry::BAD_LAYOUT,
        format!("`{}` is not a valid OCI archive: {why}", path.display()),
    )
    .hint("create an archive with `kubectl bundle save` or `kubectl bundle pull --to FILE.tar`")
}

#[cfg(test)]
mod tests;
