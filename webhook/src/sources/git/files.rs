//! The files of a bundle in a commit: the accepted entries, their limits, and their bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bundle_core::content::FileIndex;
use bundle_core::reference::Digest;
use bundle_core::review::source::git::{CHART_FILE, is_bundle_entry, is_repository_root};
use bundle_oci::Limits;
use bundle_oci::limits::NAMES;
use bundle_oci::unpack::{self, FileSink};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

use crate::blocking;
use crate::clients::git::GitError;
use crate::sources::FetchedFiles;

/// Maximum size of a list of files, in bytes: their paths, and 64 bytes for each file.
pub(super) const LISTING_BYTES: usize = NAMES + (20_000 * 64);
/// Maximum size of a list of the objects of a commit, in bytes. Each object needs 42 bytes. The
/// list includes objects outside of the bundle.
const OBJECTS_BYTES: u64 = 16 << 20;
/// Maximum length of the header line before a blob, in bytes.
const HEADER_BYTES: u64 = 128;
/// Number of bytes that one read returns at most.
const CHUNK: usize = 64 << 10;
/// Start of a pointer file. Git LFS replaces this file with another file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    /// Path of the file in the bundle.
    pub(super) path: String,
    /// Hash of the blob that contains the file.
    pub(super) id: String,
}

/// The directory that contains the bundle in a commit.
pub(super) struct TreeListing<'a> {
    /// The directory of the bundle. `None` for the root of the repository.
    directory: Option<&'a str>,
    limits: Limits,
}

impl<'a> TreeListing<'a> {
    /// Creates the listing for `directory` of a commit.
    pub(super) fn of(directory: &'a str) -> Self {
        Self {
            directory: (!is_repository_root(directory)).then_some(directory),
            limits: Limits::default(),
        }
    }

    /// Returns true if [`Self::paths`] needs the names at the root of the repository.
    pub(super) fn needs_roots(&self) -> bool {
        self.directory.is_none()
    }

    /// Returns the paths to list, or `None` for all paths. `roots` contains the names at the root
    /// of the repository, each followed by a NUL byte. Only names that belong to a bundle are
    /// returned, because the list of all names could exceed the length of a command line.
    pub(super) fn paths(&self, roots: &[u8]) -> Option<Vec<String>> {
        if let Some(directory) = self.directory {
            return Some(vec![directory.to_owned()]);
        }
        let names = roots.split(|byte| *byte == 0);
        let names: Vec<&str> = names
            .filter_map(|name| std::str::from_utf8(name).ok())
            .collect();
        if names.contains(&CHART_FILE) {
            return None;
        }
        let names = names.into_iter().filter(|name| is_bundle_entry(name));
        Some(names.map(str::to_owned).collect())
    }

    /// Parses the output of `git ls-tree -r -z`. The error continues a message that begins with the
    /// commit, such as `has a file whose path is not UTF-8`.
    pub(super) fn blobs(&self, output: &[u8]) -> Result<Vec<Blob>, String> {
        let mut blobs = Vec::new();
        let mut paths = BTreeSet::new();
        let mut names = 0;
        let entries = output.split(|byte| *byte == 0);
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let (mode, id, path) = parse(entry)?;
            let shown = path.escape_debug();
            match mode {
                "100644" | "100755" | "100664" => {}
                "120000" => {
                    return Err(format!(
                        "has the symbolic link `{shown}`, which is not allowed in a bundle"
                    ));
                }
                "160000" => {
                    return Err(format!(
                        "has the submodule `{shown}`, which is not allowed in a bundle"
                    ));
                }
                _ => return Err(format!("has `{shown}`, which is not a regular file")),
            }
            let path = match self.directory {
                // The directory can be a file. Its path contains no `/` after the name of the
                // directory.
                Some(directory) => path
                    .strip_prefix(directory)
                    .and_then(|rest| rest.strip_prefix('/'))
                    .ok_or_else(|| format!("has the file `{shown}` in place of the directory"))?,
                None => path,
            };
            unpack::check_path(path)
                .map_err(|why| format!("has the file `{shown}`, which {why}"))?;
            if !paths.insert(path) {
                return Err(format!("has the file `{shown}` twice"));
            }
            names += path.len();
            if blobs.len() >= self.limits.entries {
                return Err(format!("has more than {} files", self.limits.entries));
            }
            if names > NAMES {
                return Err(format!("has paths of more than {} KiB", NAMES >> 10));
            }
            blobs.push(Blob {
                path: path.to_owned(),
                id: id.to_owned(),
            });
        }
        let is_file = |path: &str| paths.contains(path);
        if let Some((path, file)) = unpack::path_inside_file(paths.iter().copied(), is_file) {
            let (path, file) = (path.escape_debug(), file.escape_debug());
            return Err(format!("has the file `{path}` inside of the file `{file}`"));
        }
        match self.directory {
            Some(directory) if blobs.is_empty() => Err(format!(
                "has no directory `{}` with files",
                directory.escape_debug()
            )),
            _ => Ok(blobs),
        }
    }
}

/// Parses one entry `MODE TYPE HASH<tab>PATH`.
fn parse(entry: &[u8]) -> Result<(&str, &str, &str), String> {
    let entry =
        std::str::from_utf8(entry).map_err(|_| "has a file whose path is not UTF-8".to_owned())?;
    let parts = entry.split_once('\t').and_then(|(facts, path)| {
        let mut facts = facts.split(' ');
        Some((facts.next()?, facts.nth(1)?, path))
    });
    parts.ok_or_else(|| "has an entry that cannot be read".to_owned())
}

/// Reads the output of `git rev-list --missing=print`, and returns the objects of `wanted` that are
/// missing in the folder. Other objects are not kept in memory, because a commit can contain many
/// more objects than a bundle.
pub(super) async fn missing(
    output: impl AsyncBufRead + Unpin,
    wanted: &BTreeSet<&str>,
) -> Result<BTreeSet<String>, GitError> {
    let mut output = output.take(OBJECTS_BYTES + 1);
    let mut missing = BTreeSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = output.read_until(b'\n', &mut line).await;
        if read.map_err(GitError::Io)? == 0 {
            break;
        }
        let id = line.trim_ascii_end().strip_prefix(b"?");
        let id = id.and_then(|id| std::str::from_utf8(id).ok());
        missing.extend(id.filter(|id| wanted.contains(id)).map(str::to_owned));
    }
    if output.limit() == 0 {
        return Err(GitError::Output("the revision has too many files"));
    }
    Ok(missing)
}

/// The reason why a blob could not be read.
#[derive(Debug)]
pub(super) enum BlobError {
    /// The sink could not store the file.
    Sink(io::Error),
    /// The output of the process ended early.
    Pipe(io::Error),
    /// The file is not allowed. The text continues a message that begins with the commit.
    Invalid(String),
}

/// Writes files into a sink within the limits of a bundle.
pub(super) struct BlobReader<S: FileSink> {
    sink: S,
    files: BTreeMap<String, S::File>,
    index: FileIndex,
    limits: Limits,
    bytes: u64,
}

impl<S: FileSink> BlobReader<S> {
    pub(super) fn new(sink: S) -> Self {
        Self {
            sink,
            files: BTreeMap::new(),
            index: FileIndex::default(),
            limits: Limits::default(),
            bytes: 0,
        }
    }

    /// Reads the next blob of `git cat-file --batch`.
    pub(super) async fn read(
        &mut self,
        output: &mut (impl AsyncBufRead + Unpin),
        blob: &Blob,
    ) -> Result<(), BlobError> {
        let size = size_of(output, blob).await?;
        self.bytes = self.bytes.saturating_add(size);
        let path = &blob.path;
        if size > self.limits.file {
            let limit = self.limits.file >> 20;
            return Err(BlobError::Invalid(format!(
                "has the file `{path}` of more than {limit} MiB"
            )));
        }
        if self.bytes > self.limits.total {
            let limit = self.limits.total >> 20;
            return Err(BlobError::Invalid(format!(
                "has files of more than {limit} MiB"
            )));
        }
        let mut hash = Sha256::new();
        let mut chunk = vec![0; CHUNK];
        let mut left = usize::try_from(size).unwrap_or(usize::MAX);
        let mut is_start = true;
        while left > 0 {
            let next = left.min(CHUNK);
            let part = &mut chunk[..next];
            output.read_exact(part).await.map_err(BlobError::Pipe)?;
            if is_start && part.starts_with(LFS_POINTER) {
                return Err(BlobError::Invalid(format!(
                    "has the file `{path}`, which is a Git LFS pointer and not the file itself"
                )));
            }
            is_start = false;
            hash.update(&*part);
            let sink = &mut self.sink;
            blocking::run(|| sink.write_all(part)).map_err(BlobError::Sink)?;
            left -= next;
        }
        let end = output.read_u8().await.map_err(BlobError::Pipe)?;
        if end != b'\n' {
            return Err(BlobError::Pipe(io::ErrorKind::InvalidData.into()));
        }
        let file = self.sink.end_file().map_err(BlobError::Sink)?;
        self.files.insert(path.clone(), file);
        self.index.insert(path.clone(), hash.finalize().into());
        Ok(())
    }

    /// Returns the files that were read, and the digest of all files.
    pub(super) fn finish(self) -> (Digest, FetchedFiles<S>) {
        (self.index.digest(), (self.files, self.sink))
    }
}

/// Reads the line `HASH blob SIZE`, and returns the size in bytes.
async fn size_of(output: &mut (impl AsyncBufRead + Unpin), blob: &Blob) -> Result<u64, BlobError> {
    let mut line = Vec::new();
    let mut limited = output.take(HEADER_BYTES);
    let read = limited.read_until(b'\n', &mut line).await;
    read.map_err(BlobError::Pipe)?;
    let line = String::from_utf8(line).unwrap_or_default();
    let size = line
        .strip_prefix(blob.id.as_str())
        .and_then(|rest| rest.trim_end().strip_prefix(" blob "))
        .and_then(|size| size.parse().ok());
    size.ok_or_else(|| BlobError::Pipe(io::ErrorKind::UnexpectedEof.into()))
}

#[cfg(test)]
mod tests {
    use bundle_testkit::UNSAFE_PATHS;

    use super::*;

    #[test]
    fn rejects_entries_of_a_tree_that_are_not_allowed_in_bundles() {
        let listed = |entries: &[u8]| {
            let blobs = TreeListing::of("").blobs(entries)?;
            Ok::<_, String>(blobs.into_iter().map(|blob| blob.path).collect::<Vec<_>>())
        };
        for (path, why) in UNSAFE_PATHS {
            let entry = format!("100644 blob 0a\t{path}\0");
            let found = listed(entry.as_bytes()).unwrap_err();
            assert!(found.contains(why), "{path:?}: {found}");
        }
        for (entries, why) in [
            (&b"120000 blob 0a\tmanifests/a\0"[..], "symbolic link"),
            (b"160000 commit 0a\tmanifests/a\0", "submodule"),
            (b"040000 tree 0a\tmanifests/a\0", "not a regular file"),
            (b"100644 blob 0a\tmanifests/\xff\0", "not UTF-8"),
            (b"100644 blob 0a\0", "cannot be read"),
            (b"100644 blob 0a\ta\x00100644 blob 0b\ta\0", "`a` twice"),
            (
                b"100644 blob 0a\ta\x00100644 blob 0b\ta/b\0",
                "`a/b` inside of the file `a`",
            ),
        ] {
            let found = listed(entries).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        // Nothing is checked out, so git reads no file of this name.
        let found = listed(b"100755 blob 0a\t.git/config\0").unwrap();
        assert_eq!(found, [".git/config"]);
    }

    #[tokio::test]
    async fn missing_objects_of_the_bundle_alone_are_kept() {
        let wanted = BTreeSet::from(["0a", "0b", "0c"]);
        let output = b"0a\n?0b\n?0d\n?0c\n0e\n?0c\n";
        let found = missing(&output[..], &wanted).await.unwrap();
        let found: Vec<_> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["0b", "0c"]);
    }

    #[tokio::test]
    async fn rejects_a_list_of_objects_above_its_limit() {
        let most = usize::try_from(OBJECTS_BYTES).unwrap();
        let mut output = b"?0123456789abcde\n".repeat(most / 16);
        output.truncate(most);
        assert!(missing(&output[..], &BTreeSet::new()).await.is_ok());
        output.push(b'\n');
        let error = missing(&output[..], &BTreeSet::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "the revision has too many files");
    }
}
