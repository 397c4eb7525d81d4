//! Reading the small files that settings name: never more of them than is allowed.
//! Not here: what is in them.

use std::io::{self, Read as _};
use std::path::Path;

/// The content of a file that is no larger than `limit`; larger ones are an error.
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
