//! Unpacks an image into a folder. Layers of any size are streamed, and nothing is written outside
//! of the folder.

mod entry;
mod place;
mod tree;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

use bundle_core::reference::Digest;

use super::entry::refused;
use super::entry_budget::EntryBudget;
use super::stream::{self, TarEntry, unwritable};
use super::{ImageLayers, UnpackError};
use crate::limits::{Limits, format_size};
use crate::manifest::Descriptor;
use entry::TarEntryKind;
pub use place::TargetFolder;
use tree::{LinkBudget, Tree, TreeNode};

/// Maximum number of skipped entries that are listed individually.
const MAX_LISTED: usize = 20;

/// Result of unpacking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnpackResult {
    /// Number of files, hard links included.
    pub files: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
    /// Number of symbolic links.
    pub links: u64,
    /// Number of files whose setuid or setgid bit was removed.
    pub setuid_removed: u64,
    /// The first twenty skipped entries with the reason, as sentences.
    pub skipped: Vec<String>,
    /// Number of skipped entries.
    pub skipped_count: u64,
}

/// Unpacks an image into a folder.
///
/// The folder is new, private and empty. The unpacker tracks the content of the folder in memory,
/// and never resolves paths on disk. The unpacker creates symbolic links last.
#[derive(Debug)]
pub struct DiskUnpacker {
    folder: PathBuf,
    image: ImageLayers,
    limits: Limits,
    bytes: u64,
    budget: EntryBudget,
    tree: Tree,
    skip_unsafe: bool,
    written: UnpackResult,
}

impl DiskUnpacker {
    /// Creates an unpacker for the verified image configuration and the layers. The folder must be
    /// empty, and no other process may write to it. With `skip_unsafe`, devices, named pipes and
    /// links out of the folder are skipped and listed. Without `skip_unsafe`, these entries are
    /// errors.
    pub fn new(
        folder: &Path,
        config: &Descriptor,
        config_bytes: &[u8],
        layers: &[Descriptor],
        limits: Limits,
        skip_unsafe: bool,
    ) -> Result<Self, UnpackError> {
        Ok(Self {
            folder: folder.to_owned(),
            image: ImageLayers::new(config, config_bytes, layers, &limits)?,
            bytes: limits.total,
            budget: EntryBudget::new(limits),
            limits,
            tree: Tree::default(),
            skip_unsafe,
            written: UnpackResult::default(),
        })
    }

    /// Returns the digests of the uncompressed layers, lowest first.
    pub fn diff_ids(&self) -> &[Digest] {
        &self.image.diff_ids
    }

    /// Unpacks layer `index` from `input` over the lower layers. A read error of `input` is
    /// returned as truncated content, so the caller must report the read error instead.
    pub fn layer(&mut self, index: usize, input: impl Read) -> Result<(), UnpackError> {
        let (layer, diff_id) = self.image.layer(index)?;
        let (bytes, ratio) = (self.bytes, self.limits.ratio);
        let count = stream::layer(&layer, Some(&diff_id), input, bytes, ratio, |entries| {
            while let Some(mut item) = entries.next()? {
                self.budget.charge_entry()?;
                if let Some((path, kind)) = entry::read_entry(&mut item)? {
                    self.budget.charge_name(&path)?;
                    self.grant(&path, kind, index, item)?;
                }
            }
            Ok(())
        })?;
        self.bytes = self.bytes.saturating_sub(count);
        Ok(())
    }

    /// Creates the symbolic links and returns the result.
    pub fn finish(mut self) -> Result<UnpackResult, UnpackError> {
        let links: Vec<(String, String)> = self
            .tree
            .links()
            .map(|(path, target)| (path.to_owned(), target.to_owned()))
            .collect();
        let mut budget = LinkBudget::default();
        for (path, target) in links {
            if self.tree.stays_inside(&path, &target, &mut budget)? {
                self.link(&path, &tree::relative(&path, &target))?;
                self.written.links += 1;
            } else {
                self.skip_entry(
                    &path,
                    "is a symbolic link to a target that is outside of the folder or cannot exist",
                )?;
            }
        }
        Ok(self.written)
    }

    fn grant<R: Read>(
        &mut self,
        path: &str,
        kind: TarEntryKind,
        layer: usize,
        item: TarEntry<'_, R>,
    ) -> Result<(), UnpackError> {
        if let TarEntryKind::Whiteout { below } = kind {
            for (path, node) in self.tree.remove(path, below, layer) {
                self.erase(&path, &node)?;
            }
            return Ok(());
        }
        for folder in self.tree.missing_folders(path)? {
            self.budget.charge_entry()?;
            self.budget.charge_name(&folder)?;
            self.folder(&folder, 0o755)?;
            self.tree.put(&folder, TreeNode::Folder, layer);
        }
        if let TarEntryKind::Folder { mode } = kind {
            if path.is_empty() {
                return Ok(());
            }
            if self.tree.get(path) != Some(&TreeNode::Folder) {
                self.clear(path, layer)?;
                self.folder(path, mode)?;
            }
            self.tree.put(path, TreeNode::Folder, layer);
            return Ok(());
        }
        let node = match kind {
            TarEntryKind::File {
                size,
                mode,
                had_setuid_or_setgid: marked,
            } => {
                if size > self.limits.file {
                    return Err(UnpackError::TooLarge {
                        what: format!("the file `{path}` ({})", format_size(size)),
                        limit: format_size(self.limits.file),
                    });
                }
                self.clear(path, layer)?;
                let mut file = self.create(path, mode)?;
                stream::content(path, size, item, &mut file)?;
                self.written.files += 1;
                self.written.bytes += size;
                self.written.setuid_removed += u64::from(marked);
                TreeNode::File
            }
            TarEntryKind::HardLink { path: other } => {
                let Some(node) = self.tree.get(&other).cloned() else {
                    return Err(refused(
                        path,
                        format!("is a hard link to `{other}`, which does not exist"),
                    ));
                };
                if node == TreeNode::Folder {
                    return Err(refused(path, "is a hard link to a folder"));
                }
                if other == path {
                    return Err(refused(path, "is a hard link to itself"));
                }
                self.clear(path, layer)?;
                // The removal of entries may have removed the target of the hard link.
                if self.tree.get(&other).is_none() {
                    return Err(refused(path, "is a hard link to the file that it replaces"));
                }
                if node == TreeNode::File {
                    fs::hard_link(self.folder.join(&other), self.folder.join(path))
                        .map_err(|error| occupied_path(path, &error))?;
                    self.written.files += 1;
                }
                node
            }
            TarEntryKind::Link { target } => {
                self.clear(path, layer)?;
                TreeNode::Link(target)
            }
            TarEntryKind::Special(why) => {
                self.clear(path, layer)?;
                self.skip_entry(path, why)?;
                TreeNode::Skipped
            }
            TarEntryKind::Folder { .. } | TarEntryKind::Whiteout { .. } => return Ok(()),
        };
        if let TreeNode::Link(target) = &node {
            self.budget.charge_name(target)?;
        }
        self.tree.put(path, node, layer);
        Ok(())
    }

    fn clear(&mut self, path: &str, layer: usize) -> Result<(), UnpackError> {
        for (path, node) in self.tree.clear(path, layer)? {
            self.erase(&path, &node)?;
        }
        Ok(())
    }

    fn skip_entry(&mut self, path: &str, why: &'static str) -> Result<(), UnpackError> {
        if !self.skip_unsafe {
            return Err(refused(path, why));
        }
        self.written.skipped_count += 1;
        if self.written.skipped.len() < MAX_LISTED {
            let path: String = path
                .chars()
                .take(200)
                .flat_map(char::escape_debug)
                .collect();
            self.written.skipped.push(format!("`{path}` {why}"));
        }
        Ok(())
    }

    fn erase(&self, path: &str, node: &TreeNode) -> Result<(), UnpackError> {
        let place = self.folder.join(path);
        match node {
            TreeNode::Folder => fs::remove_dir(place),
            TreeNode::File => fs::remove_file(place),
            TreeNode::Link(_) | TreeNode::Skipped => Ok(()),
        }
        .map_err(|error| unwritable(path, &error))
    }

    fn folder(&self, path: &str, mode: u32) -> Result<(), UnpackError> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode);
        #[cfg(not(unix))]
        let _ = mode;
        builder
            .create(self.folder.join(path))
            .map_err(|error| occupied_path(path, &error))
    }

    /// Creates a new file. An existing link is not followed.
    fn create(&self, path: &str, mode: u32) -> Result<File, UnpackError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        #[cfg(not(unix))]
        let _ = mode;
        options
            .open(self.folder.join(path))
            .map_err(|error| occupied_path(path, &error))
    }

    #[cfg(unix)]
    fn link(&mut self, path: &str, target: &str) -> Result<(), UnpackError> {
        std::os::unix::fs::symlink(target, self.folder.join(path))
            .map_err(|error| occupied_path(path, &error))
    }

    /// Skips the symbolic link. On Windows, the creation of a symbolic link needs a privilege, and
    /// the link type depends on its target (file or folder).
    #[cfg(not(unix))]
    fn link(&mut self, path: &str, _: &str) -> Result<(), UnpackError> {
        self.skip_entry(
            path,
            "is a symbolic link, which this operating system does not support",
        )
    }
}

/// Returns the error for a path that already exists on disk, although the tree in memory does not
/// contain it.
fn occupied_path(path: &str, error: &std::io::Error) -> UnpackError {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        return refused(
            path,
            "collides with another path on this disk, for example because the file system ignores \
            upper and lower case",
        );
    }
    unwritable(path, error)
}
