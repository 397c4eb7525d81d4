//! Archives with bytes that depend only on the packed files: times, modes, owners and order are
//! fixed.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::write::DeflateEncoder;
use flate2::{Compression, GzBuilder};
use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, ZipArchiveWriter};
use tar::EntryType;

use crate::image::{append, header};

/// Time of all files: 1980-01-01, the first time that zip archives support.
const TIME: u32 = 315_532_800;
/// Compression level of both archive formats.
const LEVEL: u32 = 6;
const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// File of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Content of the file.
    pub content: Vec<u8>,
    /// `true` if the file is executable.
    pub is_program: bool,
}

impl ArchiveFile {
    /// Returns an executable file.
    pub fn program(content: impl Into<Vec<u8>>) -> Self {
        Self {
            content: content.into(),
            is_program: true,
        }
    }

    /// Returns a file with text.
    pub fn text(content: impl Into<Vec<u8>>) -> Self {
        Self {
            content: content.into(),
            is_program: false,
        }
    }

    const fn mode(&self) -> u32 {
        if self.is_program {
            PROGRAM_MODE
        } else {
            FILE_MODE
        }
    }
}

/// Files by their paths in an archive.
pub type ArchiveFiles = BTreeMap<String, ArchiveFile>;

/// Returns a tar archive, compressed with gzip.
pub(super) fn tar_gz(files: &ArchiveFiles) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, file) in files {
        let mut header = header(EntryType::Regular, file.mode(), file.content.len() as u64);
        header.set_mtime(TIME.into());
        append(&mut archive, header, path, &file.content)?;
    }
    let archive = archive.into_inner().context("cannot pack an archive")?;
    // The operating system in the header must not depend on the operating system of this machine.
    let mut gzip = GzBuilder::new()
        .operating_system(255)
        .write(Vec::new(), Compression::new(LEVEL));
    gzip.write_all(&archive)?;
    gzip.finish().context("cannot compress an archive")
}

/// Returns a zip archive.
pub(super) fn zip(files: &ArchiveFiles) -> Result<Vec<u8>> {
    let mut archive = ZipArchiveWriter::new(Vec::new());
    for (path, file) in files {
        let builder = archive
            .new_file(path.as_str())
            .compression_method(CompressionMethod::DEFLATE)
            .last_modified(UtcDateTime::from_unix(TIME.into()))
            .unix_permissions(file.mode());
        let (mut entry, config) = builder.start().context("cannot add a file to an archive")?;
        let encoder = DeflateEncoder::new(&mut entry, Compression::new(LEVEL));
        let mut writer = config.wrap(encoder);
        writer.write_all(&file.content)?;
        let (encoder, descriptor) = writer.finish().context("cannot compress a file")?;
        encoder.finish()?;
        entry
            .finish(descriptor)
            .context("cannot finish a file of an archive")?;
    }
    archive.finish().context("cannot finish an archive")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use bundle_core::reference::Digest;

    use super::*;

    fn files() -> ArchiveFiles {
        BTreeMap::from([
            ("LICENSE".to_owned(), ArchiveFile::text("terms\n")),
            (
                "kubectl-bundle".to_owned(),
                ArchiveFile::program("\x7fELF".repeat(1000)),
            ),
            ("man/man1/page.1".to_owned(), ArchiveFile::text(".TH")),
        ])
    }

    #[test]
    fn tar_archive_has_fixed_times_owners_and_modes() {
        let packed = tar_gz(&files()).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let entries: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                format!(
                    "{:o} {}:{} {} {}",
                    header.mode().unwrap(),
                    header.uid().unwrap(),
                    header.gid().unwrap(),
                    header.mtime().unwrap(),
                    entry.path().unwrap().display()
                )
            })
            .collect();
        assert_eq!(
            entries,
            [
                "644 0:0 315532800 LICENSE",
                "755 0:0 315532800 kubectl-bundle",
                "644 0:0 315532800 man/man1/page.1",
            ]
        );
    }

    #[test]
    fn zip_archive_has_the_files() {
        let packed = zip(&files()).unwrap();
        let archive = rawzip::ZipArchive::from_slice(packed.as_slice()).unwrap();
        let mut found = ArchiveFiles::new();
        for entry in archive.entries() {
            let entry = entry.unwrap();
            let name = entry
                .file_path()
                .try_normalize()
                .unwrap()
                .as_ref()
                .to_owned();
            let compressed = archive.get_entry(entry.wayfinder()).unwrap();
            let mut content = Vec::new();
            flate2::read::DeflateDecoder::new(compressed.data())
                .read_to_end(&mut content)
                .unwrap();
            let is_program = entry.mode().value() & 0o777 == PROGRAM_MODE;
            found.insert(
                name,
                ArchiveFile {
                    content,
                    is_program,
                },
            );
        }
        assert_eq!(found, files());
    }

    /// Compares the digests of two archives with fixed values. If the digests differ after a
    /// change, for example of flate2's back end, the digests of all archives of a release change
    /// too.
    #[test]
    fn same_files_have_the_same_digest() {
        let digest = |bytes: Vec<u8>| Digest::of(&bytes).hex().to_owned();
        assert_eq!(
            [tar_gz(&files()), zip(&files())].map(|packed| digest(packed.unwrap())),
            [
                "b8c333d83eb92c3f4bdf2015e0c9f68ac197af07ce0d36bf64b1a7f88fcd88b7",
                "8d7ecce79c411c18fe54c2961a4a16e68d5c17c5e7c974fc058c7582201e2a03",
            ]
        );
    }
}
