//! Reads the headers of a tar in order, and skips the content between the headers.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use tar::{EntryType, Header, PaxExtensions};

use super::EntryLocation;

/// Maximum number of entries in an archive. An archive of a layout has one entry for each blob.
const MAX_ENTRIES: usize = 100_000;
/// Maximum size in bytes of an extended header (PAX records, GNU long names).
const MAX_EXTENSION_BYTES: u64 = 64 << 10;
const BLOCK: u64 = 512;

/// The first bytes of a gzip stream.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Returns `true` if the file begins with a tar header that has a valid checksum, or with the magic
/// bytes of gzip. [`read`] rejects a gzip file with an error that explains the cause.
pub(super) fn is_tar(path: &Path) -> io::Result<bool> {
    if !fs_err::metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut block = [0; 512];
    fs_err::File::open(path)?.read_exact(&mut block)?;
    if block.starts_with(&GZIP_MAGIC) {
        return Ok(true);
    }
    let header = Header::from_byte_slice(&block);
    Ok(block[257..].starts_with(b"ustar") && checksum_holds(header))
}

/// Returns the offset and size of each regular file, by name.
pub(super) fn read(mut file: impl Read + Seek) -> io::Result<BTreeMap<String, EntryLocation>> {
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut found = BTreeMap::new();
    let mut position = 0;
    let mut count = 0;
    let mut extended = ExtendedHeader::default();
    loop {
        let mut block = [0; 512];
        match file.read_exact(&mut block) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && count > 0 => {
                return Err(refused("it is truncated; transfer it again"));
            }
            Err(error) => return Err(error),
        }
        if position == 0 && block.starts_with(&GZIP_MAGIC) {
            return Err(refused(
                "it is compressed with gzip; decompress it first (gunzip)",
            ));
        }
        position += BLOCK;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(found);
        }
        count += 1;
        if count > MAX_ENTRIES {
            return Err(refused(format!("it has more than {MAX_ENTRIES} entries")));
        }
        let header = Header::from_byte_slice(&block);
        if !checksum_holds(header) {
            return Err(refused(format!(
                "the header at byte {} is damaged, or the file is not a tar",
                position - BLOCK
            )));
        }
        let kind = header.entry_type();
        let size = if is_extension(kind) {
            header.entry_size()
        } else {
            extended.size.map_or_else(|| header.entry_size(), Ok)
        }
        .map_err(|_| refused("an entry has no size"))?;
        let end = position
            .checked_add(size)
            .filter(|end| *end <= length)
            .ok_or_else(|| refused("it is truncated; transfer it again"))?;
        if is_extension(kind) {
            if size > MAX_EXTENSION_BYTES {
                return Err(refused("an extended header is larger than 64 KiB"));
            }
            let mut text = Vec::new();
            file.by_ref().take(size).read_to_end(&mut text)?;
            extended.take(kind, &text)?;
        } else {
            let name = match extended.path.take() {
                Some(path) => path,
                None => String::from_utf8(header.path_bytes().into_owned())
                    .map_err(|_| refused("an entry has a name that is not UTF-8"))?,
            };
            extended = ExtendedHeader::default();
            place(&mut found, kind, &name, position, size)?;
        }
        position = end.next_multiple_of(BLOCK);
        file.seek(SeekFrom::Start(position))?;
    }
}

fn place(
    found: &mut BTreeMap<String, EntryLocation>,
    kind: EntryType,
    name: &str,
    offset: u64,
    size: u64,
) -> io::Result<()> {
    let shown = |why: &str| {
        let name: String = name
            .chars()
            .take(200)
            .flat_map(char::escape_debug)
            .collect();
        refused(format!("its entry `{name}` {why}"))
    };
    match kind {
        EntryType::Regular | EntryType::Continuous => {}
        EntryType::Directory if size == 0 => return Ok(()),
        EntryType::Symlink | EntryType::Link => return Err(shown("is a link")),
        EntryType::GNUSparse => return Err(shown("is a sparse file")),
        _ => return Err(shown("is neither a file nor a folder")),
    }
    let path = name.strip_prefix("./").unwrap_or(name);
    if path.starts_with('/')
        || path.split('/').any(|part| matches!(part, "" | "." | ".."))
        || path.contains(|c: char| c.is_control() || c == '\\')
    {
        return Err(shown("has a path outside of the archive"));
    }
    if found.contains_key(path) {
        return Err(shown("is a duplicate"));
    }
    found.insert(path.to_owned(), EntryLocation { offset, size });
    Ok(())
}

/// Fields from PAX and GNU headers. They override the same fields of the next header.
#[derive(Default)]
struct ExtendedHeader {
    path: Option<String>,
    size: Option<u64>,
}

impl ExtendedHeader {
    fn take(&mut self, kind: EntryType, text: &[u8]) -> io::Result<()> {
        let utf8 = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec())
                .map_err(|_| refused("an entry has a name that is not UTF-8"))
        };
        match kind {
            EntryType::GNULongName => {
                let end = text
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(text.len());
                self.path = Some(utf8(&text[..end])?);
            }
            EntryType::XHeader => {
                for record in PaxExtensions::new(text) {
                    let record = record?;
                    match record.key_bytes() {
                        b"path" => self.path = Some(utf8(record.value_bytes())?),
                        b"size" => {
                            let size = record.value().ok().and_then(|text| text.parse().ok());
                            self.size = Some(size.ok_or_else(|| refused("an entry has no size"))?);
                        }
                        key if key.starts_with(b"GNU.sparse") => {
                            return Err(refused("it contains a sparse file"));
                        }
                        _ => {}
                    }
                }
            }
            // Ignores global PAX headers, which contain comments. Also ignores targets of links,
            // because the caller rejects every link.
            _ => {}
        }
        Ok(())
    }
}

fn is_extension(kind: EntryType) -> bool {
    matches!(
        kind,
        EntryType::XHeader
            | EntryType::XGlobalHeader
            | EntryType::GNULongName
            | EntryType::GNULongLink
    )
}

fn checksum_holds(header: &Header) -> bool {
    let bytes = header.as_bytes();
    let sum: u32 = bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| {
            if (148..156).contains(&at) {
                32
            } else {
                u32::from(*byte)
            }
        })
        .sum();
    header.cksum().is_ok_and(|said| said == sum)
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}
