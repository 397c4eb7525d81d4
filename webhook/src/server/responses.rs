//! Memory of responses that clients do not read. The reserved memory of a response is released
//! after its last byte is sent. If a response is not sent within [`SEND_TIMEOUT`], its connection
//! is closed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tokio::task::JoinHandle;

use super::connections::Client;
use crate::budget::Share;

/// Time limit for a client to read a response. API servers read a response immediately.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response, in bytes. The largest responses contain a patch with texts from the
/// review.
const RESPONSE_LIMIT: usize = 16 << 20;

/// The reserved memory of a response, as an extension of the HTTP response.
#[derive(Clone)]
pub struct ResponseShares(Arc<Mutex<Vec<Share>>>);

impl ResponseShares {
    /// Creates the extension. The shares must cover the size of the response.
    pub fn new(shares: Vec<Share>) -> Self {
        Self(Arc::new(Mutex::new(shares)))
    }

    fn take(&self) -> Vec<Share> {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut shares)
    }
}

/// Bytes of a response, with their reserved memory. The memory is released when the connection has
/// sent the bytes and drops the last copy of the bytes.
struct UnsentBody {
    bytes: Bytes,
    _shares: Vec<Share>,
    closing: JoinHandle<()>,
}

impl AsRef<[u8]> for UnsentBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentBody {
    fn drop(&mut self) {
        self.closing.abort();
    }
}

/// Returns the response with a body that owns the reserved memory. If the response is not sent
/// within `timeout`, the connection of the client is closed.
pub async fn bounded(response: Response, client: Arc<Client>, timeout: Duration) -> Response {
    let (mut parts, body) = response.into_parts();
    let shares = parts.extensions.remove::<ResponseShares>();
    let Ok(bytes) = to_bytes(body, RESPONSE_LIMIT).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if bytes.is_empty() {
        return Response::from_parts(parts, Body::empty());
    }
    let closing = tokio::spawn(async move {
        tokio::time::sleep(timeout).await;
        client.close();
    });
    let unsent = UnsentBody {
        bytes,
        _shares: shares.map_or_else(Vec::new, |shares| shares.take()),
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
        min_age: Duration::from_secs(1),
        delayed: 1,
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
    async fn shares_are_kept_until_the_last_copy_of_the_body_is_dropped() {
        let (stream, _other) = duplex(64);
        let mut connection = Connections::new(LIMITS).admit(stream, Ipv4Addr::LOCALHOST.into());
        let _accepted = connection.client().accept();
        let pool = Pool::new(100);
        let mut response = "response".into_response();
        let share = pool.take(8, Vec::new()).await.unwrap();
        let shares = ResponseShares::new(vec![share]);
        response.extensions_mut().insert(shares);
        let response = bounded(response, connection.client(), SEND_TIMEOUT).await;
        assert_eq!(pool.used(), 8);
        let body = to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!((&body[..], pool.used()), (&b"response"[..], 8));
        drop(body);
        assert_eq!(pool.used(), 0);
        // After a response was sent, the timeout does not close the connection.
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
