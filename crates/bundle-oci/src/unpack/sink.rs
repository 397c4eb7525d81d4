//! Interface for the content of files while an image is unpacked.

use std::io::{self, Write};

/// Receives files in sequence. For each file, receives the bytes through [`Write`], and then a call
/// of [`Self::end_file`]. A file without this call is incomplete and must be discarded.
pub trait FileSink: Write {
    /// Value for a complete file.
    type File;

    /// Ends the current file. The content of the file is all bytes that were written since the
    /// previous call.
    fn end_file(&mut self) -> io::Result<Self::File>;
}

/// Keeps the bytes of each file in memory.
#[derive(Debug, Default)]
pub struct InMemory {
    current: Vec<u8>,
}

impl Write for InMemory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.current.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileSink for InMemory {
    type File = Vec<u8>;

    fn end_file(&mut self) -> io::Result<Vec<u8>> {
        Ok(std::mem::take(&mut self.current))
    }
}
