//! Kind and path of an entry of an image.

use std::io::Read;

use tar::{Entry, EntryType};

use super::super::UnpackError;
use super::super::entry::{self, AcceptedKind as Plain, IMAGE, SPARSE, refused};

/// Maximum length of a link's target, in bytes.
const MAX_TARGET_BYTES: u64 = 4096;

/// Kind of a tar entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TarEntryKind {
    /// A folder with these permissions.
    Folder { mode: u32 },
    /// A file with these permissions. `had_setuid_or_setgid` is true if the file had setuid or
    /// setgid.
    File {
        size: u64,
        mode: u32,
        had_setuid_or_setgid: bool,
    },
    /// A symbolic link with its original target.
    Link { target: String },
    /// A hard link to this path.
    HardLink { path: String },
    /// Whiteout: removes a path of lower layers, or with `below` only the content below the path.
    Whiteout { below: bool },
    /// An unsupported entry. The text is the end of a sentence about the entry, such as "is a
    /// device".
    Special(&'static str),
}

/// Reads an entry's header; `None` for entries without a path.
pub(super) fn read_entry<R: Read>(
    item: &mut Entry<'_, R>,
) -> Result<Option<(String, TarEntryKind)>, UnpackError> {
    let name = entry::name(item)?;
    let kind = item.header().entry_type();
    if kind == EntryType::XGlobalHeader {
        return global(item, &name).map(|()| None);
    }
    let folder = kind == EntryType::Directory;
    let path = entry::normalise(&name, folder, IMAGE).map_err(|why| refused(&name, why))?;
    let mode = item
        .header()
        .mode()
        .map_err(|_| refused(&name, "has no mode"))?;
    let kind = match kind {
        EntryType::Directory => TarEntryKind::Folder {
            mode: mode & 0o755 | 0o700,
        },
        EntryType::Regular | EntryType::Continuous => {
            if let Some(removal) = entry::whiteout(&name, &path)? {
                let Plain::Removal { below } = removal.kind else {
                    return Ok(None);
                };
                return Ok(Some((removal.path, TarEntryKind::Whiteout { below })));
            }
            TarEntryKind::File {
                size: item.size(),
                mode: mode & 0o755 | 0o600,
                had_setuid_or_setgid: mode & 0o6000 != 0,
            }
        }
        EntryType::Symlink => TarEntryKind::Link {
            target: target(item, &name)?,
        },
        EntryType::Link => {
            // Some tools write a leading `/` in the target of a hard link. The target is relative
            // to the root of the image.
            let target = target(item, &name)?;
            let path = entry::normalise(target.trim_start_matches('/'), false, IMAGE)
                .map_err(|why| refused(&name, format!("is a hard link whose target {why}")))?;
            TarEntryKind::HardLink { path }
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            TarEntryKind::Special(entry::describe(kind))
        }
        EntryType::GNUSparse => return Err(refused(&name, SPARSE)),
        other => return Err(refused(&name, entry::describe(other))),
    };
    Ok(Some((path, kind)))
}

fn target<R: Read>(item: &mut Entry<'_, R>, name: &str) -> Result<String, UnpackError> {
    let target = item
        .link_name_bytes()
        .ok_or_else(|| refused(name, "is a link without a target"))?;
    let target = std::str::from_utf8(&target)
        .map_err(|_| refused(name, "is a link to a name that is not UTF-8"))?;
    if target.is_empty() || target.len() as u64 > MAX_TARGET_BYTES {
        return Err(refused(name, "is a link whose target is too long or empty"));
    }
    if target.chars().any(char::is_control) || cfg!(windows) && target.contains(['\\', ':']) {
        return Err(refused(
            name,
            "is a link with an invalid character in its target",
        ));
    }
    Ok(target.to_owned())
}

/// Reads global PAX records, which apply to all following entries. Readers differ on the effect of
/// such records. Therefore records that would change a path or a size are rejected.
fn global<R: Read>(item: &mut Entry<'_, R>, name: &str) -> Result<(), UnpackError> {
    let mut records = Vec::new();
    let unreadable = || refused(name, "has invalid PAX records");
    item.by_ref()
        .take(64 << 10)
        .read_to_end(&mut records)
        .map_err(|_| unreadable())?;
    for record in tar::PaxExtensions::new(&records) {
        let record = record.map_err(|_| unreadable())?;
        let key = record.key_bytes();
        if matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(b"GNU.sparse.") {
            return Err(refused(name, "sets the path or size of all files"));
        }
    }
    Ok(())
}
