//! Images to a folder on disk: every layer streams through, whatever its size, and nothing is ever written outside of that folder.
//! Not here: where the layers come from (store), and what a bundle's files mean (the module above, bundle_core::format).

mod entry;
mod place;
mod tree;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

use bundle_core::reference::Digest;

use super::entry::refused;
use super::stream::{self, Item, unwritable};
use super::{Image, UnpackError};
use crate::limits::{Limits, human};
use crate::manifest::Descriptor;
use entry::Wish;
pub use place::Place;
use tree::{Node, Tree};

/// Most things left out that are named one by one.
const NAMED: usize = 20;

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Files, with their other names.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Symbolic links.
    pub links: u64,
    /// Files that were setuid or setgid, and are not here.
    pub unmarked: u64,
    /// What was left out and why, as sentences; the first twenty.
    pub left_out: Vec<String>,
    /// How many were left out.
    pub left_out_count: u64,
}

/// An image on its way into a folder.
///
/// The folder is new, private and empty: what stands in it is known from memory alone, symbolic links are made when everything else is there,
/// and no path is ever followed on the disk.
#[derive(Debug)]
pub struct Unpacking {
    folder: PathBuf,
    image: Image,
    limits: Limits,
    bytes: u64,
    entries: usize,
    tree: Tree,
    skip_unsafe: bool,
    written: Written,
}

impl Unpacking {
    /// Begins with an empty folder that nobody else writes to, the bytes of the image's configuration, whose digest has been checked, and its
    /// layers. With `skip_unsafe`, devices, named pipes and links that lead outside are left out and told, instead of stopping everything.
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
            image: Image::new(config, config_bytes, layers, &limits)?,
            bytes: limits.total,
            entries: limits.entries,
            limits,
            tree: Tree::default(),
            skip_unsafe,
            written: Written::default(),
        })
    }

    /// The digests of the layers as they are inflated, lowest first.
    pub fn diff_ids(&self) -> &[Digest] {
        &self.image.diff_ids
    }

    /// Reads layer `index` from `input`, over what the layers below it left. An error of the input itself shows as content that ends early;
    /// whoever feeds it knows better and says so instead.
    pub fn layer(&mut self, index: usize, input: impl Read) -> Result<(), UnpackError> {
        let (layer, diff_id) = self.image.layer(index)?;
        let (bytes, ratio) = (self.bytes, self.limits.ratio);
        let count = stream::layer(&layer, &diff_id, input, bytes, ratio, |entries| {
            while let Some(mut item) = entries.next()? {
                self.entries =
                    self.entries
                        .checked_sub(1)
                        .ok_or_else(|| UnpackError::TooLarge {
                            what: "the number of entries".to_owned(),
                            limit: self.limits.entries.to_string(),
                        })?;
                if let Some((path, wish)) = entry::look(&mut item)? {
                    self.grant(&path, wish, index, item)?;
                }
            }
            Ok(())
        })?;
        self.bytes = self.bytes.saturating_sub(count);
        Ok(())
    }

    /// Makes the links, and says what was written.
    pub fn finish(mut self) -> Result<Written, UnpackError> {
        let links: Vec<(String, String)> = self
            .tree
            .links()
            .map(|(path, target)| (path.to_owned(), target.to_owned()))
            .collect();
        for (path, target) in links {
            if self.tree.stays_inside(&path, &target) {
                self.link(&path, &tree::relative(&path, &target))?;
                self.written.links += 1;
            } else {
                self.leave_out(&path, "is a symbolic link that leads outside, or nowhere")?;
            }
        }
        Ok(self.written)
    }

    fn grant<R: Read>(
        &mut self,
        path: &str,
        wish: Wish,
        layer: usize,
        item: Item<'_, R>,
    ) -> Result<(), UnpackError> {
        if let Wish::Removal { below } = wish {
            for (path, node) in self.tree.remove(path, below, layer) {
                self.erase(&path, &node)?;
            }
            return Ok(());
        }
        for folder in self.tree.missing_folders(path)? {
            self.folder(&folder, 0o755)?;
            self.tree.put(&folder, Node::Folder, layer);
        }
        if let Wish::Folder { mode } = wish {
            if path.is_empty() {
                return Ok(());
            }
            if self.tree.get(path) != Some(&Node::Folder) {
                self.clear(path, layer)?;
                self.folder(path, mode)?;
            }
            self.tree.put(path, Node::Folder, layer);
            return Ok(());
        }
        let node = match wish {
            Wish::File { size, mode, marked } => {
                if size > self.limits.file {
                    return Err(UnpackError::TooLarge {
                        what: format!("the file `{path}` ({})", human(size)),
                        limit: human(self.limits.file),
                    });
                }
                self.clear(path, layer)?;
                let mut file = self.create(path, mode)?;
                stream::content(path, size, item, &mut file)?;
                self.written.files += 1;
                self.written.bytes += size;
                self.written.unmarked += u64::from(marked);
                Node::File
            }
            Wish::Same { path: other } => {
                let Some(node) = self.tree.get(&other).cloned() else {
                    return Err(refused(
                        path,
                        format!("is a hard link to `{other}`, which is not there"),
                    ));
                };
                if node == Node::Folder {
                    return Err(refused(path, "is a hard link to a folder"));
                }
                if other == path {
                    return Err(refused(path, "is a hard link to itself"));
                }
                self.clear(path, layer)?;
                // The room that was made may have been the target's folder.
                if self.tree.get(&other).is_none() {
                    return Err(refused(path, "is a hard link to what it replaces"));
                }
                if node == Node::File {
                    fs::hard_link(self.folder.join(&other), self.folder.join(path))
                        .map_err(|error| taken(path, &error))?;
                    self.written.files += 1;
                }
                node
            }
            Wish::Link { target } => {
                self.clear(path, layer)?;
                Node::Link(target)
            }
            Wish::Special(why) => {
                self.clear(path, layer)?;
                self.leave_out(path, why)?;
                Node::Nothing
            }
            Wish::Folder { .. } | Wish::Removal { .. } => return Ok(()),
        };
        self.tree.put(path, node, layer);
        Ok(())
    }

    fn clear(&mut self, path: &str, layer: usize) -> Result<(), UnpackError> {
        for (path, node) in self.tree.clear(path, layer)? {
            self.erase(&path, &node)?;
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &str, why: &'static str) -> Result<(), UnpackError> {
        if !self.skip_unsafe {
            return Err(refused(path, why));
        }
        self.written.left_out_count += 1;
        if self.written.left_out.len() < NAMED {
            let path: String = path
                .chars()
                .take(200)
                .flat_map(char::escape_debug)
                .collect();
            self.written.left_out.push(format!("`{path}` {why}"));
        }
        Ok(())
    }

    fn erase(&self, path: &str, node: &Node) -> Result<(), UnpackError> {
        let place = self.folder.join(path);
        match node {
            Node::Folder => fs::remove_dir(place),
            Node::File => fs::remove_file(place),
            Node::Link(_) | Node::Nothing => Ok(()),
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
            .map_err(|error| taken(path, &error))
    }

    /// A file that is not there yet; a link in its place is not followed either.
    fn create(&self, path: &str, mode: u32) -> Result<File, UnpackError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        #[cfg(not(unix))]
        let _ = mode;
        options
            .open(self.folder.join(path))
            .map_err(|error| taken(path, &error))
    }

    #[cfg(unix)]
    fn link(&mut self, path: &str, target: &str) -> Result<(), UnpackError> {
        std::os::unix::fs::symlink(target, self.folder.join(path))
            .map_err(|error| taken(path, &error))
    }

    /// Links need rights of their own there, and say whether they lead to a folder.
    #[cfg(not(unix))]
    fn link(&mut self, path: &str, _: &str) -> Result<(), UnpackError> {
        self.leave_out(path, "is a symbolic link, which this system does not make")
    }
}

/// What is said where the disk has something in a place that ought to be free.
fn taken(path: &str, error: &std::io::Error) -> UnpackError {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        return refused(
            path,
            "differs from another only in a way that this disk does not tell apart, such as upper and lower case",
        );
    }
    unwritable(path, error)
}
