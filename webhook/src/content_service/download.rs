//! The response with the bytes of an archive. A client that reads too slowly is disconnected.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tokio::task::JoinHandle;

use super::request::{ByteSelection, entity_tag};
use crate::archives::BundleArchive;
use crate::budget::Share;
use crate::server::connections::{AcceptedRequest, Client};

/// Time limit of a download, in addition to the time for its bytes at `MIN_RATE`.
const BASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum rate of a download, in bytes per second.
const MIN_RATE: u64 = 64 << 10;

/// A download that is not sent completely yet.
struct Download {
    archive: Option<Box<dyn BundleArchive>>,
    next: u64,
    /// End of the selected bytes, as an offset. The byte at this offset is not included.
    end: u64,
    _slot: Share,
    _request: AcceptedRequest,
    closing: JoinHandle<()>,
}

impl Drop for Download {
    fn drop(&mut self) {
        self.closing.abort();
    }
}

impl Download {
    /// Returns the next bytes. Returns `None` at the end.
    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let lost = || io::Error::other("the archive was lost");
        let mut archive = self.archive.take().ok_or_else(lost)?;
        let from = self.next;
        let reading = tokio::task::spawn_blocking(move || {
            let bytes = archive.read(from);
            (archive, bytes)
        });
        let (archive, bytes) = reading.await.map_err(io::Error::other)?;
        self.archive = Some(archive);
        let mut bytes = Bytes::from(bytes?);
        bytes.truncate(usize::try_from(self.end - from).unwrap_or(usize::MAX));
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.next += bytes.len() as u64;
        Ok(Some(bytes))
    }
}

/// Returns the response with the selected bytes of `archive`. The response to a HEAD request has no
/// body. The slot is released after the last byte is sent.
pub(super) fn response(
    archive: Box<dyn BundleArchive>,
    selected: ByteSelection,
    is_head: bool,
    (slot, client): (Share, Arc<Client>),
) -> Response {
    let size = archive.size();
    let tag = entity_tag(archive.digest());
    let mut fields = vec![
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, tag),
        // Bundles can contain Secrets, so shared HTTP caches must not store the response.
        (header::CACHE_CONTROL, "private, no-cache".to_owned()),
    ];
    let (status, next, end) = match selected {
        ByteSelection::All => (StatusCode::OK, 0, size),
        ByteSelection::Range { first, last } => {
            fields.push((
                header::CONTENT_RANGE,
                format!("bytes {first}-{last}/{size}"),
            ));
            (StatusCode::PARTIAL_CONTENT, first, last + 1)
        }
        ByteSelection::NotModified => (StatusCode::NOT_MODIFIED, 0, 0),
        ByteSelection::OutOfRange => {
            fields.push((header::CONTENT_RANGE, format!("bytes */{size}")));
            (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0)
        }
    };
    if status.is_success() {
        fields.push((header::CONTENT_TYPE, "application/gzip".to_owned()));
        fields.push((header::CONTENT_LENGTH, (end - next).to_string()));
    }
    let body = if is_head || end == next {
        Body::empty()
    } else {
        let limit = BASE_TIMEOUT + Duration::from_secs((end - next) / MIN_RATE);
        let request = client.accept();
        let closing = tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            client.close();
        });
        let download = Download {
            archive: Some(archive),
            next,
            end,
            _slot: slot,
            _request: request,
            closing,
        };
        let parts = futures::stream::try_unfold(download, |mut download| async move {
            let bytes = download.read().await?;
            Ok::<_, io::Error>(bytes.map(|bytes| (bytes, download)))
        });
        Body::from_stream(parts)
    };
    let mut response = (status, body).into_response();
    for (name, value) in fields {
        // Digests and numbers are valid header values.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
