//! Blob downloads, and their faults.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};

use super::call::{Call, error};
use super::fault::Ranges;
use super::{Fault, Shared, lock};

pub(super) fn blob(call: &Call<'_>) -> Response {
    let Some(mut bytes) = lock(&call.shared.store).blob(call.repository, call.name) else {
        return error(StatusCode::NOT_FOUND, "blob unknown to registry");
    };
    if *call.method != Method::GET {
        return ([(header::CONTENT_LENGTH, bytes.len())], Body::empty()).into_response();
    }
    if lock(&call.shared.spared).contains(call.name) {
        return bytes.into_response();
    }
    let half = bytes.slice(..bytes.len() / 2);
    let length = [(header::CONTENT_LENGTH, bytes.len())];
    match &mut *lock(&call.shared.fault) {
        Some(Fault::LyingBlob) => bytes = bytes.iter().map(|byte| byte ^ 1).collect(),
        Some(Fault::TruncatedBlob) => bytes = half,
        Some(Fault::CutBlob) => return broken(length, half),
        Some(Fault::StallingBlob) => {
            let started = stream::iter([Ok::<_, Infallible>(half)]).chain(stream::pending());
            return (length, Body::from_stream(started)).into_response();
        }
        Some(Fault::SlowBlob { piece, pause }) => {
            let slow = slowly(call.shared, bytes, (*piece).max(1), *pause);
            return (length, Body::from_stream(slow)).into_response();
        }
        Some(Fault::RedirectBlobs(to)) => {
            let place = [(header::LOCATION, format!("{to}/{}", call.name))];
            return (StatusCode::TEMPORARY_REDIRECT, place).into_response();
        }
        Some(Fault::EndlessBlob) => {
            let start = stream::iter([Ok::<_, Infallible>(bytes)]);
            return Body::from_stream(start.chain(pieces(call.shared, b'x'))).into_response();
        }
        Some(Fault::BrokenBlob {
            after,
            times,
            ranges,
        }) => {
            let (after, ranges) = (*after, *ranges);
            let breaks = *times > 0;
            *times = times.saturating_sub(1);
            return part(call.headers, &bytes, ranges, breaks.then_some(after));
        }
        _ => return part(call.headers, &bytes, Ranges::Honored, None),
    }
    bytes.into_response()
}

/// Returns the requested range, or the whole blob. If `after` is set, the connection breaks after
/// this number of bytes.
fn part(headers: &HeaderMap, bytes: &Bytes, ranges: Ranges, after: Option<usize>) -> Response {
    let from: Option<usize> = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let (head, rest) = match (from, ranges) {
        (None, _) | (_, Ranges::Ignored) => (None, bytes.clone()),
        (Some(_), Ranges::RangeNotSatisfiable) => {
            return error(StatusCode::RANGE_NOT_SATISFIABLE, "no");
        }
        (Some(from), _) if from >= bytes.len() => {
            return error(StatusCode::RANGE_NOT_SATISFIABLE, "past the end");
        }
        (Some(from), Ranges::Honored) => (Some(from), bytes.slice(from..)),
        (Some(from), Ranges::ShiftedRange) => (Some(from - 1), bytes.slice(from - 1..)),
        (Some(from), Ranges::WrongRange) => (Some(from), bytes.slice(..bytes.len() - from)),
    };
    let mut sent = [(header::CONTENT_LENGTH, rest.len())]
        .into_response()
        .headers()
        .clone();
    let code = match head {
        Some(first) => {
            let range = format!("bytes {first}-{}/{}", bytes.len() - 1, bytes.len());
            if let Ok(value) = range.parse() {
                sent.insert(header::CONTENT_RANGE, value);
            }
            StatusCode::PARTIAL_CONTENT
        }
        None => StatusCode::OK,
    };
    match after {
        Some(after) => {
            let mut response = broken([], rest.slice(..after.min(rest.len())));
            *response.status_mut() = code;
            response.headers_mut().extend(sent);
            response
        }
        None => (code, sent, rest).into_response(),
    }
}

/// Returns a response with these bytes. The connection breaks after the last byte.
fn broken<const N: usize>(headers: [(header::HeaderName, usize); N], bytes: Bytes) -> Response {
    let pieces = [Ok(bytes), Err(std::io::Error::other("cut"))];
    // There is a pause before the error, so that the preceding bytes are sent first.
    let pieces = stream::iter(pieces).then(|piece| async {
        if piece.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        piece
    });
    (headers, Body::from_stream(pieces)).into_response()
}

/// A slow transfer. It counts as in progress until this value is dropped.
struct SlowTransfer(Arc<Shared>);

impl Drop for SlowTransfer {
    fn drop(&mut self) {
        self.0.slow.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a body that sends the bytes in pieces, with a pause before each piece.
fn slowly(
    shared: &Arc<Shared>,
    bytes: Bytes,
    piece: usize,
    pause: Duration,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> + Send + use<> {
    shared.slow.fetch_add(1, Ordering::Relaxed);
    let transfer = SlowTransfer(Arc::clone(shared));
    stream::unfold((bytes, transfer), move |(mut rest, transfer)| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let sent = rest.split_to(piece.min(rest.len()));
        Some((Ok(sent), (rest, transfer)))
    })
}

/// Returns a body that repeats `byte` and has 400 MiB. The sent bytes are counted.
pub(super) fn huge(shared: &Arc<Shared>, byte: u8) -> Body {
    Body::from_stream(pieces(shared, byte))
}

fn pieces(
    shared: &Arc<Shared>,
    byte: u8,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> + Send + use<> {
    let shared = Arc::clone(shared);
    stream::repeat(Bytes::from(vec![byte; 1 << 20]))
        .take(400)
        .map(move |piece| {
            shared.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Ok(piece)
        })
}
