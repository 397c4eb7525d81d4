//! The layer's bytes: a tar with nothing in it that differs between machines, and gzip the same way.
//! Not here: the documents around it.

use std::collections::BTreeSet;
use std::io::Write;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use crate::unpack::check_path;

/// An archive of `files` and the folders above them, sorted by path; owner and group 0, time 0, modes 0644 and 0755.
pub(super) fn tar(files: &Files) -> Result<Vec<u8>, Finding> {
    let mut paths = BTreeSet::new();
    for path in files.keys() {
        check_path(path).map_err(|why| refused(path, why))?;
        paths.insert(path.as_str());
        let mut rest = path.as_str();
        while let Some((folder, _)) = rest.rsplit_once('/') {
            if files.contains_key(folder) {
                return Err(refused(path, "lies inside a file"));
            }
            paths.insert(folder);
            rest = folder;
        }
    }
    let mut archive = Vec::new();
    for path in paths {
        let content = files.get(path);
        let header = header(path, content.map(Vec::len))?;
        archive.extend_from_slice(header.as_bytes());
        if let Some(content) = content {
            archive.extend_from_slice(content);
            archive.resize(archive.len().next_multiple_of(512), 0);
        }
    }
    archive.resize(archive.len() + 1024, 0);
    Ok(archive)
}

fn header(path: &str, size: Option<usize>) -> Result<Header, Finding> {
    let mut header = Header::new_ustar();
    let name = match size {
        Some(_) => path.to_owned(),
        None => format!("{path}/"),
    };
    header
        .set_path(&name)
        .map_err(|_| refused(path, "has a path that is too long for an archive"))?;
    header.set_entry_type(match size {
        Some(_) => EntryType::Regular,
        None => EntryType::Directory,
    });
    header.set_mode(if size.is_some() { 0o644 } else { 0o755 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size.unwrap_or(0) as u64);
    header.set_cksum();
    Ok(header)
}

fn refused(path: &str, why: &str) -> Finding {
    Finding::error(codes::registry::UNSAFE_ENTRY, format!("`{path}` {why}"))
        .in_file(path)
        .hint("rename or move the file")
}

/// gzip with a fixed header. The level and the pure Rust compressor are part of every digest.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(Vec::new(), Compression::new(6));
    #[expect(clippy::expect_used, reason = "writing into memory cannot fail")]
    {
        writer.write_all(bytes).expect("memory takes every byte");
        writer.finish().expect("memory takes every byte")
    }
}
