//! Memory of responses that clients do not read. Each response keeps the share of its review until
//! its last byte is sent, and its connection is closed after [`SEND_TIMEOUT`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tokio::task::JoinHandle;

use super::connections::Client;
use crate::budget::Share;

/// Time limit for a client to read a response. API servers read at once.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response, in bytes. The largest have a patch with texts of their review.
const RESPONSE_LIMIT: usize = 16 << 20;

/// Share of memory of a response, as an extension of the response.
#[derive(Clone)]
pub struct ResponseShare(Arc<Mutex<Option<Share>>>);

impl ResponseShare {
    /// Creates the extension.
    pub fn new(share: Share) -> Self {
        Self(Arc::new(Mutex::new(Some(share))))
    }

    fn take(&self) -> Option<Share> {
        let mut share = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        share.take()
    }
}

/// Bytes that the connection sends. Dropped with their last copy.
struct Unsent {
    bytes: Bytes,
    _share: Option<Share>,
    closing: JoinHandle<()>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.closing.abort();
    }
}

/// Returns the response with a body that keeps its share, and closes the connection of the client
/// if it is not sent within `timeout`.
pub async fn bounded(response: Response, client: Arc<Client>, timeout: Duration) -> Response {
    let (mut parts, body) = response.into_parts();
    let share = parts.extensions.remove::<ResponseShare>();
    let Ok(bytes) = to_bytes(body, RESPONSE_LIMIT).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if bytes.is_empty() {
        return Response::from_parts(parts, Body::empty());
    }
    let mut share = share.and_then(|share| share.take());
    if let Some(share) = &mut share {
        share.reduce(bytes.len() as u64);
    }
    let closing = tokio::spawn(async move {
        tokio::time::sleep(timeout).await;
        client.close();
    });
    let unsent = Unsent {
        bytes,
        _share: share,
        closing,
    };
    Response::from_parts(parts, Body::from(Bytes::from_owner(unsent)))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;
    use crate::budget::Pool;
    use crate::server::connections::{Connections, Limits};

    const LIMITS: Limits = Limits {
        unauthenticated: 1,
        max_age: Duration::from_secs(5),
        max_stall: SEND_TIMEOUT,
        received: 8,
        authenticated: 1,
        authenticated_by_address: 1,
        waiting: 1,
        waiting_in_all: 1,
        waiting_by_address: 1,
        rejected: 1,
    };

    #[tokio::test(start_paused = true)]
    async fn share_is_kept_until_the_last_copy_of_the_body_is_dropped() {
        let (stream, _other) = duplex(64);
        let mut connection = Connections::new(LIMITS).admit(stream, Ipv4Addr::LOCALHOST.into());
        let _accepted = connection.client().accept();
        let pool = Pool::new(100);
        let mut response = "response".into_response();
        let share = pool.take(50, Vec::new()).await.unwrap();
        response.extensions_mut().insert(ResponseShare::new(share));
        let response = bounded(response, connection.client(), SEND_TIMEOUT).await;
        assert_eq!(pool.used(), 8);
        let body = to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!((&body[..], pool.used()), (&b"response"[..], 8));
        drop(body);
        assert_eq!(pool.used(), 0);
        // A response that was sent closes nothing.
        let waited = tokio::time::timeout(SEND_TIMEOUT * 2, connection.read_u8()).await;
        assert!(waited.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_is_not_sent_closes_an_authenticated_connection() {
        let (stream, _other) = duplex(64);
        let mut connection = Connections::new(LIMITS).admit(stream, Ipv4Addr::LOCALHOST.into());
        let _accepted = connection.client().accept();
        let response = "response".into_response();
        let _held = bounded(response, connection.client(), SEND_TIMEOUT).await;
        let waited = tokio::time::timeout(SEND_TIMEOUT * 2, connection.read_u8()).await;
        assert!(waited.unwrap().is_err());
    }
}
