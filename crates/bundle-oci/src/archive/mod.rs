//! An image as one file: an OCI layout in a tar, read in place by an index of its entries, and written whole or not at all.
//! Not here: what the layout holds (layout, store) and the tars that are layers (pack, unpack).

mod entries;
mod plan;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};

use crate::blob::FilePart;
use crate::layout;

pub use plan::Plan;

/// An archive that can be read: where each of its files begins, and how long it is.
#[derive(Debug, Clone)]
pub struct Archive {
    path: PathBuf,
    entries: BTreeMap<String, Entry>,
}

/// Where the content of an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    offset: u64,
    size: u64,
}

/// Whether the file looks like a tar: it has the mark of one in its first header.
pub fn is_archive(path: &Path) -> bool {
    entries::is_tar(path).unwrap_or(false)
}

impl Archive {
    /// Reads the headers of all entries, and no content. Anything but regular files and folders is refused, and so is a name that is there twice.
    pub fn open(path: &Path) -> Result<Self, Finding> {
        let bad = |why: &str| bad(path, why);
        let file = fs_err::File::open(path).map_err(|error| bad(&error.to_string()))?;
        let entries = entries::read(std::io::BufReader::with_capacity(16 << 10, file))
            .map_err(|error| bad(&error.to_string()))?;
        if !entries.contains_key(layout::MARK) {
            return Err(bad("it has no file `oci-layout`"));
        }
        Ok(Self {
            path: path.to_owned(),
            entries,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of an entry and its size.
    pub fn part(&self, name: &str) -> Option<(FilePart, u64)> {
        let entry = self.entries.get(name)?;
        Some((FilePart::new(&self.path, entry.offset), entry.size))
    }
}

fn bad(path: &Path, why: &str) -> Finding {
    Finding::error(
        codes::registry::BAD_LAYOUT,
        format!(
            "`{}` cannot be used as an OCI archive: {why}",
            path.display()
        ),
    )
    .hint("make one with `kubectl bundle save` or `kubectl bundle pull --to FILE.tar`")
}

#[cfg(test)]
mod tests;
