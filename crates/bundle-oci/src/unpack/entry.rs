//! Which entries of an archive are taken, and under which path.
//! Not here: their content.

use std::io::Read;

use bundle_core::format::Files;
use tar::{Entry, EntryType};

use super::UnpackError;

/// Longest path that is taken, in bytes.
const LONGEST: usize = 1024;
/// Deepest path that is taken, in components.
const DEEPEST: usize = 32;

/// An entry that is taken.
pub(super) struct Taken {
    /// Relative, with `/`, without `.`; empty for the root.
    pub(super) path: String,
    pub(super) kind: Kind,
}

/// What an entry is to us.
pub(super) enum Kind {
    Folder,
    File {
        size: u64,
    },
    /// An image's way to say that a path of a lower layer is gone, or only what is below it.
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

/// Looks at one entry's header.
pub(super) fn take<R: Read>(entry: &Entry<'_, R>) -> Result<Taken, UnpackError> {
    let name = entry.path_bytes();
    let Ok(name) = std::str::from_utf8(&name) else {
        return Err(refused(
            &String::from_utf8_lossy(&name),
            "has a name that is not UTF-8",
        ));
    };
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
    let path = normalise(name, folder).map_err(|why| refused(name, why))?;
    if folder {
        return Ok(Taken {
            path,
            kind: Kind::Folder,
        });
    }
    let (parent, base) = path.rsplit_once('/').unwrap_or(("", &path));
    if let Some(gone) = base.strip_prefix(".wh.") {
        let below = gone == ".wh..opq";
        let path = match (below, parent) {
            (true, parent) => parent.to_owned(),
            (false, "") => gone.to_owned(),
            (false, parent) => format!("{parent}/{gone}"),
        };
        if !below && (gone.is_empty() || gone.starts_with(".wh.")) {
            return Err(refused(name, "is not a whiteout that means anything"));
        }
        return Ok(Taken {
            path,
            kind: Kind::Removal { below },
        });
    }
    let size = entry.size();
    Ok(Taken {
        path,
        kind: Kind::File { size },
    })
}

fn describe(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Symlink => "is a symbolic link",
        EntryType::Link => "is a hard link",
        EntryType::Char | EntryType::Block => "is a device",
        EntryType::Fifo => "is a named pipe",
        _ => "is neither a file nor a folder",
    }
}

/// The path under which a name is kept; `./` before it and, for folders, `/` behind it are usual and dropped.
fn normalise(name: &str, folder: bool) -> Result<String, &'static str> {
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
    check(rest)?;
    Ok(rest.to_owned())
}

/// The rule for paths in a bundle: relative, plain components, nothing that another system would read as something else.
pub(crate) fn check(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("has no name");
    }
    if path.starts_with('/') {
        return Err("has an absolute path");
    }
    if path.len() > LONGEST {
        return Err("has a path of more than 1024 bytes");
    }
    if path.contains('\\') {
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
    if depth > DEEPEST {
        return Err("lies deeper than 32 folders");
    }
    Ok(())
}

/// `a` and `a/b` cannot both be files.
pub(super) fn no_file_is_a_folder(files: &Files) -> Result<(), UnpackError> {
    for path in files.keys() {
        let mut ancestor = path.as_str();
        while let Some((parent, _)) = ancestor.rsplit_once('/') {
            if files.contains_key(parent) {
                return Err(refused(
                    path,
                    format!("lies inside `{parent}`, which is a file"),
                ));
            }
            ancestor = parent;
        }
    }
    Ok(())
}
