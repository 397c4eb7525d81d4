//! Request body from a part of a blob. The progress of the body distinguishes a stalled connection
//! from a slow connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bundle_core::diagnostic::Finding;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use reqwest::Body;

use crate::blob::{Blob, BlobContent, ByteStream, changed_content};
use crate::hash::Hasher;
use crate::progress::Progress;

/// Maximum size of a piece that is passed to a connection. Small pieces make the progress of a slow
/// connection visible.
const MAX_SLICE_BYTES: usize = 256 << 10;

/// Part of a blob that a request sends.
#[derive(Debug, Clone)]
pub(in crate::registry) struct BlobPart<'a> {
    pub(in crate::registry) blob: &'a Blob,
    pub(in crate::registry) from: u64,
    pub(in crate::registry) length: u64,
    pub(in crate::registry) watch: Arc<SendProgress>,
}

impl<'a> BlobPart<'a> {
    pub(in crate::registry) fn new(blob: &'a Blob, from: u64, length: u64) -> Self {
        Self {
            blob,
            from,
            length,
            watch: Arc::default(),
        }
    }

    pub(in crate::registry) fn whole(blob: &'a Blob) -> Self {
        Self::new(blob, 0, blob.descriptor.size)
    }

    /// Returns a new body that begins at the start of the part.
    pub(in crate::registry) fn body(&self, progress: &Arc<dyn Progress>) -> Body {
        progress.resent(self.watch.reset());
        // A file may have changed since its digest was computed, so the file is hashed again.
        // Remote content is hashed while it arrives, and content in memory does not change.
        let whole = self.from == 0 && self.length == self.blob.descriptor.size;
        let hasher = (whole && matches!(self.blob.content, BlobContent::File(_))).then(Hasher::new);
        let feed = BodyStream {
            pieces: self.blob.open(self.from),
            rest: Bytes::new(),
            left: self.length,
            hasher,
            blob: self.blob.descriptor.digest.clone(),
            watch: Arc::clone(&self.watch),
            progress: Arc::clone(progress),
        };
        Body::wrap_stream(stream::unfold(Some(feed), |feed| async {
            let mut feed = feed?;
            match feed.next().await {
                Ok(Some(slice)) => Some((Ok(slice), Some(feed))),
                Ok(None) => None,
                Err(finding) => {
                    let error = std::io::Error::other(finding.message.clone());
                    *feed.watch.lock() = Some(finding);
                    Some((Err(error), None))
                }
            }
        }))
    }
}

/// Progress of a body that is being sent.
#[derive(Debug, Default)]
pub(in crate::registry) struct SendProgress {
    taken: AtomicU64,
    /// `true` while the body waits for bytes from the content. `false` while it waits for the
    /// connection.
    waiting: AtomicBool,
    failed: Mutex<Option<Finding>>,
}

impl SendProgress {
    /// Returns the number of bytes that the connection has accepted.
    pub(in crate::registry) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(in crate::registry) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the reason why the content could not be read. `None` if there was no such error.
    pub(in crate::registry) fn failure(&self) -> Option<Finding> {
        self.lock().take()
    }

    fn reset(&self) -> u64 {
        self.waiting.store(false, Ordering::Relaxed);
        self.taken.swap(0, Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Finding>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct BodyStream {
    pieces: ByteStream,
    rest: Bytes,
    left: u64,
    hasher: Option<Hasher>,
    blob: bundle_core::reference::Digest,
    watch: Arc<SendProgress>,
    progress: Arc<dyn Progress>,
}

impl BodyStream {
    async fn next(&mut self) -> Result<Option<Bytes>, Finding> {
        if self.left == 0 {
            return Ok(None);
        }
        while self.rest.is_empty() {
            self.watch.waiting.store(true, Ordering::Relaxed);
            let piece = self.pieces.next().await;
            self.watch.waiting.store(false, Ordering::Relaxed);
            self.rest = match piece {
                Some(piece) => piece?,
                None => {
                    return Err(changed_content(
                        &self.blob,
                        "shorter than its declared size",
                    ));
                }
            };
            let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
            self.rest.truncate(wanted);
        }
        let slice = self.rest.split_to(self.rest.len().min(MAX_SLICE_BYTES));
        self.left -= slice.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&slice);
            if self.left == 0 {
                // Compares the digest before the last piece is sent, so that the registry never
                // receives all bytes of content with a wrong digest.
                let found = hasher.clone().finish();
                if found != self.blob {
                    return Err(changed_content(&self.blob, &found.to_string()));
                }
            }
        }
        let length = slice.len() as u64;
        self.watch.taken.fetch_add(length, Ordering::Relaxed);
        self.progress.moved(length);
        Ok(Some(slice))
    }
}
