//! Files: bounded reads, and atomic writes.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::{Failure, Outcome};

/// Mode of a file that only its owner can read.
pub(crate) const SECRET: u32 = 0o600;
/// Mode of a file that all users can read.
pub(crate) const PUBLIC_FILE_MODE: u32 = 0o644;

/// Maximum size of files with keys, policies or manifests, in bytes.
const MAX_FILE_BYTES: u64 = 10 << 20;

/// Returns the bytes of a file, or of standard input for `-`.
pub(crate) fn read(path: &Path) -> Outcome<Vec<u8>> {
    let name = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
    } else {
        fs_err::File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
    }
    .map_err(|error| unreadable(&name, &error))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Finding::error(
            codes::usage::FILE_UNREADABLE,
            "the file is larger than 10 MiB",
        )
        .in_file(&name)
        .hint("check that the path is correct")
        .into());
    }
    Ok(bytes)
}

/// Returns the text of a file.
pub(crate) fn read_text(path: &Path) -> Outcome<String> {
    String::from_utf8(read(path)?).map_err(|_| {
        Finding::error(codes::usage::FILE_UNREADABLE, "the file is not text")
            .in_file(path.display().to_string())
            .hint("check that the path is correct")
            .into()
    })
}

/// Text for the kind of an I/O error. The text of the error itself would repeat the path.
#[derive(Debug)]
struct IoErrorText(std::io::ErrorKind);

impl std::fmt::Display for IoErrorText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            std::io::ErrorKind::NotFound => f.write_str("no such file or folder"),
            std::io::ErrorKind::AlreadyExists => f.write_str("it already exists"),
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for IoErrorText {}

/// Returns the files for `-f`: the file itself, or the files of a folder that kubectl would read.
pub(crate) fn of_objects(path: &Path) -> Outcome<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: std::io::Result<Vec<_>> =
        fs_err::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths = entries.map_err(|error| unreadable(&path.display().to_string(), &error))?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
    });
    paths.sort();
    Ok(paths)
}

/// Returns the failure for a file that cannot be read.
pub(crate) fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::caused(
        Finding::error(codes::usage::FILE_UNREADABLE, "cannot read the file")
            .in_file(name)
            .hint("check the path and its permissions"),
        &IoErrorText(error.kind()),
    )
}

/// Creates a file with this mode, if the operating system has modes. Returns an error if the file
/// exists.
pub(crate) fn create(path: &Path, content: &[u8], mode: u32) -> Outcome {
    temporary(path, content, mode)
        .and_then(|file| file.persist_noclobber(path).map_err(|error| error.error))
        .map(drop)
        .map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::caused(
        Finding::error(codes::usage::FILE_UNWRITABLE, "cannot write the file")
            .in_file(path.display().to_string())
            .hint(
                "no partial file remains; choose an existing, writable folder without such a file",
            ),
        &IoErrorText(error.kind()),
    )
}

/// Writes all these files and creates missing folders. If a file cannot be written, no file is
/// written. Without `overwrite`, an existing file is an error.
pub(crate) fn create_all(targets: &[(PathBuf, Vec<u8>)], overwrite: bool) -> Outcome {
    for (path, _) in targets {
        if !overwrite && fs_err::symlink_metadata(path).is_ok() {
            return Err(
                Finding::error(codes::usage::FILE_UNWRITABLE, "the file already exists")
                    .in_file(path.display().to_string())
                    .hint("nothing was written; --force overwrites it")
                    .into(),
            );
        }
    }
    let mut done: Vec<(&Path, Option<Vec<u8>>)> = Vec::new();
    for (path, content) in targets {
        let before = fs_err::read(path).ok();
        if let Err(error) = write_file(path, content, overwrite) {
            for (path, before) in done {
                // The first error is the cause, so an error while the old file is restored is
                // ignored.
                let _ = match before {
                    Some(before) => write_file(path, &before, true),
                    None => fs_err::remove_file(path),
                };
            }
            return Err(unwritable(path, &error));
        }
        done.push((path, before));
    }
    Ok(())
}

fn write_file(path: &Path, content: &[u8], overwrite: bool) -> std::io::Result<()> {
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
    {
        fs_err::create_dir_all(parent)?;
    }
    let file = temporary(path, content, PUBLIC_FILE_MODE)?;
    let written = if overwrite {
        file.persist(path)
    } else {
        file.persist_noclobber(path)
    };
    written.map(drop).map_err(|error| error.error)
}

/// Returns a temporary file with the content, next to `path`. The file is removed unless it is
/// renamed.
fn temporary(path: &Path, content: &[u8], mode: u32) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".kubectl-bundle-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Writes a file and its missing parent folders. An existing file is replaced only if `may_replace`
/// returns `true` for its content.
pub(crate) fn replace(path: &Path, content: &[u8], may_replace: impl Fn(&[u8]) -> bool) -> Outcome {
    if path.exists() && !may_replace(&read(path)?) {
        return Err(Finding::error(
            codes::usage::FILE_UNWRITABLE,
            "the file exists with other content",
        )
        .in_file(path.display().to_string())
        .hint("nothing was overwritten; choose a file that does not exist")
        .into());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs_err::create_dir_all(folder)
        .and_then(|()| {
            let file = temporary(path, content, PUBLIC_FILE_MODE)?;
            file.persist(path).map_err(|error| error.error)
        })
        .map(drop)
        .map_err(|error| unwritable(path, &error))
}
