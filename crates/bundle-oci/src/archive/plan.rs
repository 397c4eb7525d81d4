//! Plan of an archive. The offsets in the file are computed from the sizes of the blobs, so that
//! several blobs can be written in parallel.

use std::collections::BTreeMap;
use std::io::{self, Seek as _, SeekFrom, Write as _};

use bundle_core::reference::Digest;
use fs_err::File;
use tar::{EntryType, Header};

use crate::layout;

const BLOCK: u64 = 512;

/// Order and offsets of the entries of an archive. The same content produces the same file. The
/// order in which blobs arrive has no effect.
#[derive(Debug)]
pub struct ArchivePlan {
    index: Vec<u8>,
    blobs: BTreeMap<Digest, PlannedBlob>,
    end: u64,
}

#[derive(Debug, Clone, Copy)]
struct PlannedBlob {
    header: u64,
    size: u64,
}

impl ArchivePlan {
    /// Plans an archive with this `index.json` and blobs of these sizes in bytes, sorted by digest.
    pub fn new(index: Vec<u8>, sizes: BTreeMap<Digest, u64>) -> Self {
        let mut position = 0;
        let mut place = |size: u64| {
            let header = position;
            position += BLOCK + size.next_multiple_of(BLOCK);
            PlannedBlob { header, size }
        };
        place(layout::MARK_CONTENT.len() as u64);
        place(index.len() as u64);
        let blobs = sizes
            .into_iter()
            .map(|(digest, size)| (digest, place(size)))
            .collect();
        Self {
            index,
            blobs,
            end: position + 2 * BLOCK,
        }
    }

    /// Writes headers, padding, `oci-layout` and `index.json`. The bytes of blobs are zero until
    /// the blobs are written.
    pub fn begin(&self, file: &mut File) -> io::Result<()> {
        file.set_len(self.end)?;
        for (name, content) in [
            (layout::LAYOUT_FILE, layout::MARK_CONTENT.as_bytes()),
            (layout::INDEX, &self.index),
        ] {
            file.write_all(header(name, content.len() as u64)?.as_bytes())?;
            file.write_all(content)?;
            let here = file.stream_position()?;
            file.seek(SeekFrom::Start(here.next_multiple_of(BLOCK)))?;
        }
        for (digest, slot) in &self.blobs {
            file.seek(SeekFrom::Start(slot.header))?;
            let name = layout::blob_path(digest);
            file.write_all(header(&name, slot.size)?.as_bytes())?;
        }
        Ok(())
    }

    /// Returns the offset at which the content of a blob begins.
    pub fn offset(&self, blob: &Digest) -> Option<u64> {
        self.blobs.get(blob).map(|slot| slot.header + BLOCK)
    }
}

fn header(name: &str, size: u64) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}
