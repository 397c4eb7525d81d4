//! Download of a blob of any size. The blob is counted and hashed while it streams, and is never
//! completely in memory. A download resumes after a broken connection.

use std::pin::Pin;
use std::task::{Context, Poll};

use bundle_core::diagnostic::Finding;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use tokio::time::Instant;

use crate::blob::{Blob, BlobContent, ByteStream, OpenBlob};
use crate::clock::runtime_instant;
use crate::hash::Hasher;
use crate::manifest::Descriptor;
use crate::registry::retry::TRANSFER_RETRIES;
use crate::registry::transport::RegistryRequest;
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository};
use crate::transfer::rate::RateWindow;

/// After this number of received bytes, the count of failures is reset.
const PROGRESS_BYTES: u64 = 4 << 20;

/// Verified bytes of a blob, as a stream. The last piece is returned only after the digest and the
/// size match. Therefore a caller that reads to the end without an error has verified content.
pub struct BlobReader {
    pieces: BoxStream<'static, Result<Bytes, RegistryError>>,
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobReader").finish_non_exhaustive()
    }
}

impl BlobReader {
    /// Returns the stream with errors as findings.
    pub fn into_pieces(self) -> ByteStream {
        self.pieces.map_err(Finding::from).boxed()
    }

    /// Reads all bytes of a small blob. The caller has checked the size.
    pub async fn bytes(mut self) -> Result<Bytes, RegistryError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.pieces.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all.freeze())
    }
}

impl Stream for BlobReader {
    type Item = Result<Bytes, RegistryError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.poll_next_unpin(cx)
    }
}

impl Client {
    /// Returns a reader for the verified bytes of a blob. The request is sent when the first byte
    /// is read.
    pub fn blob(&self, repository: &Repository, descriptor: &Descriptor) -> BlobReader {
        self.blob_after(repository, descriptor, 0, Some(Hasher::new()))
    }

    pub(in crate::registry) fn blob_after(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        offset: u64,
        hasher: Option<Hasher>,
    ) -> BlobReader {
        let subject = format!("{repository}@{}", descriptor.digest);
        let transfer = self.download(repository, descriptor, offset, hasher);
        let pieces = stream::try_unfold(transfer, move |mut transfer| {
            let subject = subject.clone();
            async move {
                match transfer.piece().await {
                    Ok(piece) => Ok(piece.map(|piece| (piece, transfer))),
                    Err(reason) => Err(RegistryError {
                        doing: "download",
                        subject,
                        reason,
                    }),
                }
            }
        });
        BlobReader {
            pieces: pieces.boxed(),
        }
    }

    /// Returns a download that starts at `offset`. Without a hasher, the caller has to hash the
    /// bytes.
    pub(in crate::registry) fn download(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        offset: u64,
        hasher: Option<Hasher>,
    ) -> Download {
        Download {
            client: self.clone(),
            repository: repository.clone(),
            descriptor: descriptor.clone(),
            hasher,
            offset,
            response: None,
            begun: false,
            skip: 0,
            failures: 0,
            since: 0,
            until: None,
            rate: RateWindow::new(offset),
            last_piece: None,
            done: false,
        }
    }

    /// Returns a [`Blob`] with remote content, for copies. No request is sent until the bytes are
    /// read.
    pub fn remote_blob(&self, repository: &Repository, descriptor: &Descriptor) -> Blob {
        Blob {
            descriptor: descriptor.clone(),
            content: BlobContent::Remote(std::sync::Arc::new(RemoteBlob {
                client: self.clone(),
                repository: repository.clone(),
                descriptor: descriptor.clone(),
            })),
        }
    }
}

#[derive(Debug)]
struct RemoteBlob {
    client: Client,
    repository: Repository,
    descriptor: Descriptor,
}

impl OpenBlob for RemoteBlob {
    fn open(&self, offset: u64) -> ByteStream {
        // Only the whole blob can be hashed. A caller that continues at an offset has already
        // hashed the bytes before the offset.
        let hasher = (offset == 0).then(Hasher::new);
        self.client
            .blob_after(&self.repository, &self.descriptor, offset, hasher)
            .into_pieces()
    }
}

/// A download in progress.
pub(in crate::registry) struct Download {
    client: Client,
    repository: Repository,
    descriptor: Descriptor,
    hasher: Option<Hasher>,
    /// Offset in the blob of the next byte to receive.
    offset: u64,
    response: Option<Response>,
    /// `true` if the registry has sent a response at least once.
    begun: bool,
    /// Number of bytes to skip at the beginning of the response, if the registry ignored `Range`.
    skip: u64,
    /// Number of consecutive failures.
    failures: u32,
    /// Number of bytes that were received after the last failure.
    since: u64,
    until: Option<Instant>,
    /// Checks the minimum rate, beginning with the registry's first piece.
    rate: RateWindow,
    /// The last piece. It is not returned before the end of the response is verified.
    last_piece: Option<Bytes>,
    done: bool,
}

impl Download {
    /// Returns the next piece, and `None` after the last piece.
    pub(in crate::registry) async fn piece(
        &mut self,
    ) -> Result<Option<Bytes>, RegistryErrorReason> {
        let allowance = self.client.allowance(self.descriptor.size);
        let until = *self
            .until
            .get_or_insert_with(|| runtime_instant() + allowance);
        loop {
            let (before, begun) = (runtime_instant(), self.begun);
            let step = tokio::time::timeout_at(until, self.step())
                .await
                .unwrap_or(Err(RegistryErrorReason::Stalled { after: allowance }));
            if begun && !self.done {
                let waited = runtime_instant().duration_since(before);
                let minimum = self.client.deadlines.minimum_rate();
                self.rate.add(waited, self.offset, minimum)?;
            }
            match step {
                Ok(piece) => return Ok(piece),
                Err(reason) if self.can_resume(&reason, until) => {
                    let pause = self.client.deadlines.transfer_pause(self.failures);
                    tokio::time::sleep(pause).await;
                }
                Err(reason) => return Err(reason),
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Bytes>, RegistryErrorReason> {
        if self.done {
            return Ok(None);
        }
        if self.last_piece.is_some() {
            // All bytes of the blob arrived, although the connection broke before the end of the
            // HTTP body.
            return self.finish();
        }
        // Removes the response from the field, so that a failed or abandoned response is not read
        // again.
        let mut response = match self.response.take() {
            Some(response) => response,
            None => self.open().await?,
        };
        self.begun = true;
        loop {
            match self.client.http.piece(&mut response).await? {
                Some(piece) => {
                    if let Some(piece) = self.take(piece)? {
                        self.response = Some(response);
                        return Ok(Some(piece));
                    }
                }
                None if self.offset < self.descriptor.size => {
                    return Err(RegistryErrorReason::SizeMismatch {
                        expected: self.descriptor.size,
                        found: self.offset,
                    });
                }
                None => return self.finish(),
            }
        }
    }

    /// Returns the last piece after comparing size and digest.
    fn finish(&mut self) -> Result<Option<Bytes>, RegistryErrorReason> {
        if let Some(hasher) = self.hasher.take() {
            let found = hasher.finish();
            if found != self.descriptor.digest {
                return Err(RegistryErrorReason::DigestMismatch {
                    expected: self.descriptor.digest.clone(),
                    found,
                });
            }
        }
        self.done = true;
        Ok(self.last_piece.take())
    }

    /// Counts and hashes a piece. Returns `None` if no piece can be returned yet.
    fn take(&mut self, mut piece: Bytes) -> Result<Option<Bytes>, RegistryErrorReason> {
        if self.skip > 0 {
            let skipped = piece
                .len()
                .min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            let _ = piece.split_to(skipped);
            self.skip -= skipped as u64;
        }
        if piece.is_empty() {
            return Ok(None);
        }
        let size = self.descriptor.size;
        if piece.len() as u64 > size - self.offset {
            return Err(RegistryErrorReason::SizeMismatch {
                expected: size,
                found: self.offset + piece.len() as u64,
            });
        }
        self.offset += piece.len() as u64;
        self.since += piece.len() as u64;
        if self.since >= PROGRESS_BYTES {
            self.failures = 0;
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&piece);
        }
        self.client.progress.moved(piece.len() as u64);
        if self.offset == size {
            self.last_piece = Some(piece);
            return Ok(None);
        }
        Ok(Some(piece))
    }

    /// Requests the missing bytes.
    async fn open(&mut self) -> Result<Response, RegistryErrorReason> {
        let ask = RegistryRequest {
            from: self.offset,
            ..RegistryRequest::get(
                &self.repository,
                format!("blobs/{}", self.descriptor.digest),
            )
        };
        let response = self.client.send(&ask).await?;
        let missing = self.descriptor.size - self.offset;
        self.skip = 0;
        let expected = if self.offset == 0 {
            missing
        } else if response.status() == StatusCode::PARTIAL_CONTENT {
            let range = content_range(&response);
            if range != Some((self.offset, self.descriptor.size)) {
                return Err(RegistryErrorReason::Malformed(format!(
                    "the registry did not send the requested range of the blob, from byte {} on",
                    self.offset
                )));
            }
            missing
        } else {
            // The registry ignores `Range` and sends the blob from its beginning. The bytes that
            // were already received are skipped. If they have changed, the digest does not match.
            self.skip = self.offset;
            self.descriptor.size
        };
        match response.content_length() {
            Some(length) if length != expected => Err(RegistryErrorReason::SizeMismatch {
                expected: self.descriptor.size,
                found: length + self.descriptor.size - expected,
            }),
            _ => Ok(response),
        }
    }

    /// Returns `true` if the transfer can be resumed after this error. A registry that has not sent
    /// any response is not retried.
    fn can_resume(&mut self, reason: &RegistryErrorReason, until: Instant) -> bool {
        let passing = matches!(
            reason,
            RegistryErrorReason::Cut { .. }
                | RegistryErrorReason::Stalled { .. }
                | RegistryErrorReason::Unreachable { .. }
                | RegistryErrorReason::Busy { .. }
        );
        self.failures += 1;
        self.since = 0;
        passing && self.begun && self.failures <= TRANSFER_RETRIES && runtime_instant() < until
    }
}

/// Parses `Content-Range`. Returns the offset of the first byte in the response, and the size of
/// the whole blob. Returns `None` if the header is missing or invalid, or if the range ends before
/// the end of the blob.
fn content_range(response: &Response) -> Option<(u64, u64)> {
    let text = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let end = last.checked_add(1)?;
    let size = match size.trim() {
        "*" => end,
        size => size.parse().ok()?,
    };
    (end == size).then_some((first, size))
}
