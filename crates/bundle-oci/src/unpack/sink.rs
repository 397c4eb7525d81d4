//! Where the content of files goes while an image is unpacked.
//! Not here: which files are taken, and under which path (the module above).

use std::io::{self, Write};

/// Takes one file after another: its bytes by [`Write`], then its end. What was written of a file that does not end is of no use.
pub trait FileSink: Write {
    /// What is known of a file once it is written.
    type File;

    /// The file whose bytes were written since the last end.
    fn end_file(&mut self) -> io::Result<Self::File>;
}

/// Keeps the bytes of each file.
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
