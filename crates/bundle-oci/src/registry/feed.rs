//! Content on its way out: a part of a blob as the body of a request, watched so that a line that stands still is told from one that is slow.
//! Not here: which parts are sent when (upload).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bundle_core::diagnostic::Finding;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use reqwest::Body;

use crate::blob::{Blob, BlobContent, Pieces, changed};
use crate::hash::Hasher;
use crate::progress::Progress;

/// The most that is handed to a connection at once: small enough that a slow line shows that it moves.
const SLICE: usize = 256 << 10;

/// A part of a blob that a request carries.
#[derive(Debug, Clone)]
pub(super) struct Part<'a> {
    pub(super) blob: &'a Blob,
    pub(super) from: u64,
    pub(super) length: u64,
    pub(super) watch: Arc<Watch>,
}

impl<'a> Part<'a> {
    pub(super) fn new(blob: &'a Blob, from: u64, length: u64) -> Self {
        Self {
            blob,
            from,
            length,
            watch: Arc::default(),
        }
    }

    pub(super) fn whole(blob: &'a Blob) -> Self {
        Self::new(blob, 0, blob.descriptor.size)
    }

    /// A body that begins at the part's beginning, whatever became of earlier ones.
    pub(super) fn body(&self, progress: &Arc<dyn Progress>) -> Body {
        progress.again(self.watch.reset());
        // A file may have changed since it was described. Content from elsewhere has been looked at on its way, and memory does not change.
        let whole = self.from == 0 && self.length == self.blob.descriptor.size;
        let hasher = (whole && matches!(self.blob.content, BlobContent::File(_))).then(Hasher::new);
        let feed = Feed {
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
                    let told = std::io::Error::other(finding.message.clone());
                    *feed.watch.lock() = Some(finding);
                    Some((Err(told), None))
                }
            }
        }))
    }
}

/// What is known of a body that is being sent.
#[derive(Debug, Default)]
pub(super) struct Watch {
    taken: AtomicU64,
    /// The content, and not the connection, is what is waited for.
    waiting: AtomicBool,
    failed: Mutex<Option<Finding>>,
}

impl Watch {
    /// Bytes that the connection has taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Why the content could not be had, if that is what went wrong.
    pub(super) fn failure(&self) -> Option<Finding> {
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

struct Feed {
    pieces: Pieces,
    rest: Bytes,
    left: u64,
    hasher: Option<Hasher>,
    blob: bundle_core::reference::Digest,
    watch: Arc<Watch>,
    progress: Arc<dyn Progress>,
}

impl Feed {
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
                None => return Err(changed(&self.blob, "shorter than it is said to be")),
            };
            let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
            self.rest.truncate(wanted);
        }
        let slice = self.rest.split_to(self.rest.len().min(SLICE));
        self.left -= slice.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&slice);
            if self.left == 0 {
                // Before the last of it is sent: the registry never has all of something that is not what it is called.
                let found = hasher.clone().finish();
                if found != self.blob {
                    return Err(changed(&self.blob, &found.to_string()));
                }
            }
        }
        let length = slice.len() as u64;
        self.watch.taken.fetch_add(length, Ordering::Relaxed);
        self.progress.moved(length);
        Ok(Some(slice))
    }
}
