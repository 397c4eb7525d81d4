//! Bounded reads of small configuration files.

use std::io::{self, Read as _};
use std::path::Path;

/// Returns the content of a file, or an error if the file has more than `limit` bytes.
pub(super) fn read_bounded(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs_err::File::open(file)?
        .take(limit + 1)
        .read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::other(format!(
            "`{}` is larger than {limit} bytes",
            file.display()
        )));
    }
    Ok(content)
}
