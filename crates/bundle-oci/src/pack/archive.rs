//! The tar of a layer, with sorted entries and without data that differs between machines.

use std::io::{self, Read, Write};

use bundle_core::diagnostic::{Finding, codes};
use tar::{EntryType, Header};

/// Writes the entries of a tar. All entries have owner and group 0, mode 0644 or 0755, and the same
/// timestamp.
pub struct TarWriter<W> {
    inner: W,
    time: u64,
}

/// Error while an entry is written.
#[derive(Debug)]
pub enum EntryError {
    /// The path is too long for a header.
    Path(Finding),
    /// The content cannot be read, or does not have the size in the header of the entry.
    Read(io::Error),
    /// The archive cannot be written.
    Write(io::Error),
}

impl<W: Write> TarWriter<W> {
    /// Returns a tar writer on top of `inner`. All entries get the timestamp `time`, in Unix
    /// seconds.
    pub fn new(inner: W, time: u64) -> Self {
        Self { inner, time }
    }

    /// Writes a folder.
    pub fn folder(&mut self, path: &str) -> Result<(), EntryError> {
        let header = self.header(path, None).map_err(EntryError::Path)?;
        self.inner
            .write_all(header.as_bytes())
            .map_err(EntryError::Write)
    }

    /// Writes a file of `size` bytes. Returns an error if `content` is longer or shorter, which
    /// means that the file changed while it was read.
    pub fn file(
        &mut self,
        path: &str,
        size: u64,
        mut content: impl Read,
    ) -> Result<(), EntryError> {
        let header = self.header(path, Some(size)).map_err(EntryError::Path)?;
        let write = |result: io::Result<()>| result.map_err(EntryError::Write);
        write(self.inner.write_all(header.as_bytes()))?;
        let mut buffer = vec![
            0;
            usize::try_from(size)
                .unwrap_or(usize::MAX)
                .clamp(1, 64 << 10)
        ];
        let mut left = size;
        loop {
            let read = match content.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(EntryError::Read(error)),
            };
            left = match left.checked_sub(read as u64) {
                Some(left) if read > 0 || left == 0 => left,
                _ => {
                    return Err(EntryError::Read(io::Error::other(
                        "it changed while it was read",
                    )));
                }
            };
            if read == 0 {
                break;
            }
            write(self.inner.write_all(&buffer[..read]))?;
        }
        let padding = usize::try_from(size.next_multiple_of(512) - size).unwrap_or(0);
        write(self.inner.write_all(&[0; 512][..padding]))
    }

    /// Ends the archive and returns the inner writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.inner.write_all(&[0; 1024])?;
        Ok(self.inner)
    }

    fn header(&self, path: &str, size: Option<u64>) -> Result<Header, Finding> {
        let mut header = Header::new_ustar();
        let name = match size {
            Some(_) => path.to_owned(),
            None => format!("{path}/"),
        };
        header
            .set_path(&name)
            .map_err(|_| refused(path, "has a path that is too long for a tar archive"))?;
        header.set_entry_type(match size {
            Some(_) => EntryType::Regular,
            None => EntryType::Directory,
        });
        header.set_mode(if size.is_some() { 0o644 } else { 0o755 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.time);
        header.set_size(size.unwrap_or(0));
        header.set_cksum();
        Ok(header)
    }
}

pub(super) fn refused(path: &str, why: &str) -> Finding {
    Finding::error(codes::registry::UNSAFE_ENTRY, format!("`{path}` {why}"))
        .in_file(path)
        .hint("rename or move the file")
}
