//! The listener of admission: its limits, and the deadline of each request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::connections::{Client, Limits};
use super::responses::{self, SEND_TIMEOUT};
use super::tls_listener::{self, Access, Drain, TlsLimits};

/// Maximum size of a body, in bytes. The review of an update has two objects of up to 3 MiB each,
/// with their managed fields.
pub(crate) const BODY_LIMIT: usize = 8 << 20;
/// Connection limits. Unauthenticated clients have not sent a valid path yet.
const CONNECTIONS: Limits = Limits {
    // An API server opens a connection for each of its first requests.
    unauthenticated: 96,
    // Longer than the handshakes of so many need.
    min_age: Duration::from_secs(2),
    // With the others, as many as API servers open for 400 writes at once. One that is not served
    // needs less than half of the memory.
    delayed: 304,
    max_age: Duration::from_secs(5),
    max_stall: SEND_TIMEOUT,
    // A handshake with client certificates, and the largest head or one record of TLS.
    received: 32 << 10,
    authenticated: 256,
    authenticated_by_address: 192,
    // An API server can have that many requests on a connection when another replica rotates.
    waiting: STREAMS as usize,
    waiting_in_all: 256,
    waiting_by_address: 192,
    rejected: 2 * STREAMS,
};
/// The limits of the listener.
const LIMITS: TlsLimits = TlsLimits {
    connections: CONNECTIONS,
    streams: STREAMS,
    stream_window: STREAM_WINDOW,
};
/// Concurrent requests of one connection. API servers open more connections if they need more
/// requests.
const STREAMS: u32 = 32;
/// HTTP/2 flow-control window of a request, in bytes. Bodies wait in this window for their share of
/// memory.
const STREAM_WINDOW: u32 = 10 << 10;
/// Serves `router` until `shutdown`, then drains as configured. `gate` sees each request before
/// `router`, and returns the response if it rejects the request. `deadline` limits each request
/// from its first byte. The deadline of a review must be shorter, so that the response has a
/// reason.
pub async fn serve<G>(
    listener: TcpListener,
    (gate, router): (G, Router),
    access: Access,
    deadline: Duration,
    drain: Drain,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    G: Fn(&mut Request) -> Result<(), Response> + Clone + Send + Sync + 'static,
{
    let router = limited(router, deadline);
    tls_listener::serve(listener, (gate, router), access, LIMITS, drain, shutdown).await
}

/// Adds the limits for all requests.
fn limited(router: Router, deadline: Duration) -> Router {
    router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            within(deadline, request, next)
        }))
}

async fn within(deadline: Duration, request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Arc<Client>>().cloned();
    let response = tokio::time::timeout(deadline, next.run(request)).await;
    let response = response.unwrap_or_else(|_| {
        let message = "the request exceeded its deadline\n";
        (StatusCode::REQUEST_TIMEOUT, message).into_response()
    });
    match client {
        Some(client) => responses::bounded(response, client, SEND_TIMEOUT).await,
        // Each connection has a client.
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests;
