//! Files as a person meant them: read up to a sensible size, written whole or not at all.
//! Not here: what is in them.

use std::io::{Read as _, Write as _};
use std::path::Path;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::{Failure, Outcome};

/// Mode of a file that only its owner may read.
pub(crate) const SECRET: u32 = 0o600;
/// Mode of a file that everybody may read.
pub(crate) const OPEN: u32 = 0o644;

/// Largest file of keys, policies or manifests that can sensibly be meant, in bytes.
const LIMIT: u64 = 10 << 20;

/// The bytes of a file, or of standard input for `-`.
pub(crate) fn read(path: &Path) -> Outcome<Vec<u8>> {
    let name = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let unreadable = |error: &std::io::Error| {
        Failure::caused(
            Finding::error(codes::usage::FILE_UNREADABLE, "the file cannot be read")
                .in_file(&name)
                .hint("check the path and its permissions"),
            &Plain(error.kind()),
        )
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(LIMIT + 1)
            .read_to_end(&mut bytes)
    } else {
        fs_err::File::open(path).and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes))
    }
    .map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > LIMIT {
        return Err(Finding::error(
            codes::usage::FILE_UNREADABLE,
            "the file is larger than 10 MiB",
        )
        .in_file(&name)
        .hint("is this the file that you meant?")
        .into());
    }
    Ok(bytes)
}

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Outcome<String> {
    String::from_utf8(read(path)?).map_err(|_| {
        Finding::error(codes::usage::FILE_UNREADABLE, "the file is not text")
            .in_file(path.display().to_string())
            .hint("is this the file that you meant?")
            .into()
    })
}

/// The kind of an I/O error: its full text would repeat the path.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Plain(std::io::ErrorKind);

/// Writes a file that does not exist yet, with this mode where the system has modes.
pub(crate) fn create(path: &Path, content: &[u8], mode: u32) -> Outcome {
    put(path, content, mode).map_err(|error| {
        Failure::caused(
            Finding::error(codes::usage::FILE_UNWRITABLE, "the file cannot be written")
                .in_file(path.display().to_string())
                .hint("nothing was left behind; choose a place that exists, may be written to, and holds no such file yet"),
            &Plain(error.kind()),
        )
    })
}

fn put(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
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
    file.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(())
}
