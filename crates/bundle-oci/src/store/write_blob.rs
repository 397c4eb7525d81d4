//! Writes one blob to a file in batches, on a separate thread, and compares the content with its
//! digest.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::mpsc;

use crate::blob::{Blob, BlobContent, changed_content};
use crate::hash::Hasher;
use crate::manifest::Descriptor;
use crate::progress::Progress;

/// Number of batches of a blob that are buffered for the disk.
const BUFFERED_BATCHES: usize = 2;
/// Size of a batch in bytes.
const BATCH: usize = 256 << 10;

/// Error of a write: a finding of the source, or an error of the disk.
pub(super) enum WriteError {
    Source(Finding),
    Disk(io::Error),
}

impl WriteError {
    pub(super) fn finding(self, what: &str, path: &Path) -> Finding {
        match self {
            Self::Source(finding) => finding,
            Self::Disk(error) => unwritable(what, path, &error),
        }
    }
}

/// Writes a blob at the file's position, on a separate thread. Returns an error if the content does
/// not match its digest and size.
pub(super) async fn write_blob(
    blob: Blob,
    mut file: fs_err::File,
    progress: &Arc<dyn Progress>,
) -> Result<(), WriteError> {
    let Descriptor { digest, size, .. } = blob.descriptor.clone();
    // The registry client has already hashed remote content while it arrived, so a second hash is
    // not needed.
    let mut hasher = (!matches!(blob.content, BlobContent::Remote(_))).then(Hasher::new);
    let (batches, mut source) = mpsc::channel::<Vec<Bytes>>(BUFFERED_BATCHES);
    let writer =
        tokio::task::spawn_blocking(move || -> Result<(u64, Option<Digest>), io::Error> {
            let mut count = 0;
            while let Some(batch) = source.blocking_recv() {
                for piece in batch {
                    if let Some(hasher) = &mut hasher {
                        hasher.update(&piece);
                    }
                    file.write_all(&piece)?;
                    count += piece.len() as u64;
                }
            }
            file.flush()?;
            Ok((count, hasher.map(Hasher::finish)))
        });
    let fed = feed(blob, batches, progress).await;
    let written = writer
        .await
        .map_err(|_| WriteError::Disk(io::Error::other("the writer stopped unexpectedly")))?
        .map_err(WriteError::Disk)?;
    fed.map_err(WriteError::Source)?;
    match written {
        (count, _) if count != size => Err(WriteError::Source(changed_content(
            &digest,
            &format!("{count} bytes instead of {size}"),
        ))),
        (_, Some(found)) if found != digest => Err(WriteError::Source(changed_content(
            &digest,
            &found.to_string(),
        ))),
        _ => Ok(()),
    }
}

async fn feed(
    blob: Blob,
    batches: mpsc::Sender<Vec<Bytes>>,
    progress: &Arc<dyn Progress>,
) -> Result<(), Finding> {
    // The registry client reports the received bytes of remote content, so they are not reported
    // here.
    let counted = matches!(blob.content, BlobContent::Remote(_));
    let mut pieces = blob.open(0);
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if !counted {
            progress.moved(piece.len() as u64);
        }
        bytes += piece.len();
        batch.push(piece);
        if bytes >= BATCH {
            bytes = 0;
            // The thread that writes has stopped. It returns its own error.
            if batches.send(std::mem::take(&mut batch)).await.is_err() {
                return Ok(());
            }
        }
    }
    // An error means that the thread that writes has stopped. The thread returns its own error.
    drop(batches.send(batch).await);
    Ok(())
}

pub(super) fn unwritable(what: &str, path: &Path, error: &io::Error) -> Finding {
    Finding::error(
        codes::usage::FILE_UNWRITABLE,
        format!("cannot write the OCI {what} `{}`: {error}", path.display()),
    )
    .hint("no partial file remains under this name")
}
