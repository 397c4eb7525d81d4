//! Kind and path of the entries of a bundle, and the rules for paths.

use std::collections::BTreeMap;
use std::io::Read;

use tar::{Entry, EntryType};

use super::UnpackError;

/// Rules for paths.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathRules {
    /// Maximum length of a path, in bytes.
    max_length: usize,
    /// Maximum number of components of a path.
    deepest: usize,
    /// `true` if a path may contain a backslash as an ordinary character.
    backslash: bool,
}

/// Rules for paths in bundles, which must be valid on every operating system.
const BUNDLE: PathRules = PathRules {
    max_length: 1024,
    deepest: 32,
    backslash: false,
};

/// Rules for paths in images of workloads. Such an image can contain the root file system of an
/// operating system, with names such as `system-systemd\x2dcryptsetup.slice`.
pub(super) const IMAGE: PathRules = PathRules {
    max_length: 4096,
    deepest: 128,
    backslash: cfg!(unix),
};

/// An accepted entry.
pub(super) struct AcceptedEntry {
    /// Relative path with `/` as separator and without `.` components. The empty path is the root.
    pub(super) path: String,
    pub(super) kind: AcceptedKind,
}

/// Kind of an accepted entry.
pub(super) enum AcceptedKind {
    Folder,
    File {
        size: u64,
    },
    /// Whiteout: removes a path of lower layers, or with `below` only the content below the path.
    Removal {
        below: bool,
    },
}

pub(super) fn refused(entry: &str, why: impl Into<String>) -> UnpackError {
    UnpackError::UnsafeEntry {
        entry: entry
            .chars()
            .take(200)
            .flat_map(char::escape_debug)
            .collect(),
        why: why.into(),
    }
}

/// Reads the header of an entry.
pub(super) fn accept<R: Read>(entry: &mut Entry<'_, R>) -> Result<AcceptedEntry, UnpackError> {
    let name = name(entry)?;
    let name = name.as_str();
    let header = entry.header();
    let kind = header.entry_type();
    let folder = match kind {
        EntryType::Regular => false,
        EntryType::Directory => true,
        other => return Err(refused(name, describe(other))),
    };
    let mode = header.mode().map_err(|_| refused(name, "has no mode"))?;
    if !folder && mode & 0o6000 != 0 {
        return Err(refused(name, "is setuid or setgid"));
    }
    let path = normalise(name, folder, BUNDLE).map_err(|why| refused(name, why))?;
    if folder {
        return Ok(AcceptedEntry {
            path,
            kind: AcceptedKind::Folder,
        });
    }
    if let Some(removal) = whiteout(name, &path)? {
        return Ok(removal);
    }
    let size = entry.size();
    Ok(AcceptedEntry {
        path,
        kind: AcceptedKind::File { size },
    })
}

/// Returns the name of the entry. Returns an error if the name is not UTF-8, or if programs that
/// read tar files would interpret the entry differently.
pub(super) fn name<R: Read>(entry: &mut Entry<'_, R>) -> Result<String, UnpackError> {
    let name = match std::str::from_utf8(&entry.path_bytes()) {
        Ok(name) => name.to_owned(),
        Err(_) => {
            return Err(refused(
                &String::from_utf8_lossy(&entry.path_bytes()),
                "has a name that is not UTF-8",
            ));
        }
    };
    if entry.header().entry_type() == EntryType::XGlobalHeader {
        return Ok(name);
    }
    let records = entry
        .pax_extensions()
        .map_err(|_| refused(&name, "has invalid PAX records"))?;
    for record in records.into_iter().flatten() {
        let record = record.map_err(|_| refused(&name, "has invalid PAX records"))?;
        if record.key_bytes().starts_with(b"GNU.sparse.") {
            return Err(refused(&name, SPARSE));
        }
    }
    Ok(name)
}

/// Reason for rejecting a sparse file, as the end of a sentence.
pub(super) const SPARSE: &str = "is a sparse file";

/// Returns the whiteout for a file with this path. `None` if the file name is not the name of a
/// whiteout.
pub(super) fn whiteout(name: &str, path: &str) -> Result<Option<AcceptedEntry>, UnpackError> {
    let (parent, base) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(gone) = base.strip_prefix(".wh.") else {
        return Ok(None);
    };
    let below = gone == ".wh..opq";
    let path = match (below, parent) {
        (true, parent) => parent.to_owned(),
        (false, "") => gone.to_owned(),
        (false, parent) => format!("{parent}/{gone}"),
    };
    if !below && (matches!(gone, "" | "." | "..") || gone.starts_with(".wh.")) {
        return Err(refused(name, "is an invalid whiteout"));
    }
    Ok(Some(AcceptedEntry {
        path,
        kind: AcceptedKind::Removal { below },
    }))
}

pub(super) fn describe(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Symlink => "is a symbolic link",
        EntryType::Link => "is a hard link",
        EntryType::Char | EntryType::Block => "is a device",
        EntryType::Fifo => "is a named pipe",
        EntryType::GNUSparse => SPARSE,
        _ => "is neither a file nor a folder",
    }
}

/// Returns the normalized path of a name: without a `./` prefix, and for folders without the
/// trailing `/`.
pub(super) fn normalise(
    name: &str,
    folder: bool,
    rules: PathRules,
) -> Result<String, &'static str> {
    let mut rest = name;
    while let Some(shorter) = rest.strip_prefix("./") {
        rest = shorter;
    }
    if folder {
        rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest == "." || rest.is_empty() && !name.starts_with('/') {
            return Ok(String::new());
        }
    }
    check_path(rest, rules)?;
    Ok(rest.to_owned())
}

/// Checks a path of a bundle. The path must be relative, and each component must be an ordinary
/// name on every operating system. The error is the end of a sentence that begins with the path.
pub fn check(path: &str) -> Result<(), &'static str> {
    check_path(path, BUNDLE)
}

/// Checks that the path is relative, has plain components, and is within the limits of `rules`.
fn check_path(path: &str, rules: PathRules) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("has no name");
    }
    if path.starts_with('/') {
        return Err("has an absolute path");
    }
    if path.len() > rules.max_length {
        return Err("has a path that is too long");
    }
    if !rules.backslash && path.contains('\\') {
        return Err("has a backslash in its path");
    }
    if path.chars().any(char::is_control) {
        return Err("has a control character in its path");
    }
    let mut depth = 0;
    for component in path.split('/') {
        depth += 1;
        match component {
            ".." => return Err("has `..` in its path"),
            "." | "" => return Err("has an empty component or `.` inside its path"),
            _ => {}
        }
    }
    let drive = path.as_bytes();
    if drive.len() > 1 && drive[1] == b':' && drive[0].is_ascii_alphabetic() {
        return Err("has an absolute path");
    }
    if depth > rules.deepest {
        return Err("is nested in too many folders");
    }
    Ok(())
}

/// Returns the first of `paths` that has a file as a parent folder, and the path of this file.
pub fn path_inside_file<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    is_file: impl Fn(&str) -> bool,
) -> Option<(&'a str, &'a str)> {
    paths.into_iter().find_map(|path| {
        let mut parents = path.rmatch_indices('/').map(move |(at, _)| &path[..at]);
        let file = parents.find(|parent| is_file(parent))?;
        Some((path, file))
    })
}

/// Returns an error if both `a` and `a/b` are files.
pub(super) fn reject_files_as_folders<T>(files: &BTreeMap<String, T>) -> Result<(), UnpackError> {
    let paths = files.keys().map(String::as_str);
    match path_inside_file(paths, |path| files.contains_key(path)) {
        Some((path, file)) => Err(refused(
            path,
            format!("is inside `{file}`, which is a file"),
        )),
        None => Ok(()),
    }
}
