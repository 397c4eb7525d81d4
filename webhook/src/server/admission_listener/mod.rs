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
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use super::connections::{Client, Limits};
use super::deadline::ReviewDeadline;
use super::responses::{self, SEND_TIMEOUT};
use super::tls_listener::{self, ShutdownPeriods, TlsCertificates, TlsLimits};

/// Maximum size of a body, in bytes. The review of an update has two objects of up to 3 MiB each,
/// with their managed fields.
pub(crate) const BODY_LIMIT: usize = 8 << 20;
/// Connection limits. A client is unauthenticated until it has sent a valid path.
const CONNECTIONS: Limits = Limits {
    // An API server opens a separate connection for each of its first concurrent requests.
    unauthenticated: 96,
    // The TLS handshakes of 96 connections need less time than this age.
    min_age: Duration::from_secs(2),
    // For 400 concurrent writes, API servers open 400 connections. This is the sum of
    // `unauthenticated` and `delayed`. A waiting connection needs less than half of the memory of a
    // served connection.
    delayed: 304,
    max_age: Duration::from_secs(5),
    max_stall: SEND_TIMEOUT,
    // A handshake with client certificates fits into this size. The largest request head and one
    // TLS record also fit.
    received: 32 << 10,
    authenticated: 256,
    authenticated_by_address: 192,
    // When another replica rotates the path, all requests of one API server connection can wait.
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
/// Maximum number of concurrent requests of one connection. For more requests, an API server opens
/// more connections.
const STREAMS: u32 = 32;
/// HTTP/2 flow-control window of a request, in bytes. Until memory for a body is reserved, the
/// client can send only this part of the body. Of a body above `SMALL_BODY`, the client can send
/// twice this part, because the first part is received to read the requester.
const STREAM_WINDOW: u32 = 10 << 10;
/// Time after the deadline of a review in which the review can still create its response. Without a
/// response, the request is rejected without a reason.
const MARGIN: Duration = Duration::from_millis(500);

/// Serves `router` until `shutdown`, and then shuts down gracefully. `gate` checks each request
/// before `router`, and returns the response to a rejected request. `deadline` is the time limit of
/// a request to which the gate has added no [`ReviewDeadline`].
pub async fn serve<G>(
    listener: TcpListener,
    (gate, router): (G, Router),
    access: TlsCertificates,
    deadline: Duration,
    drain: ShutdownPeriods,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    G: Fn(&mut Request) -> Result<(), Response> + Clone + Send + Sync + 'static,
{
    let router = limited(router, deadline);
    tls_listener::serve(listener, (gate, router), access, LIMITS, drain, shutdown).await
}

/// Returns the router with limits for all requests.
fn limited(router: Router, deadline: Duration) -> Router {
    router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            within(deadline, request, next)
        }))
}

async fn within(limit: Duration, mut request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Arc<Client>>().cloned();
    let deadline = ReviewDeadline::of_request(&request, limit);
    request.extensions_mut().insert(deadline);
    // The review runs in its own task, because its work can occupy a thread beyond the deadline.
    // This work must not delay the response.
    let mut review = JoinSet::new();
    review.spawn(next.run(request));
    let response = match timeout_at(deadline.end() + MARGIN, review.join_next()).await {
        Ok(Some(Ok(response))) => response,
        // The review panicked.
        Ok(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(_) => {
            let message = "the request exceeded its deadline\n";
            (StatusCode::REQUEST_TIMEOUT, message).into_response()
        }
    };
    // The review ends at its next wait.
    drop(review);
    match client {
        Some(client) => responses::bounded(response, client, SEND_TIMEOUT).await,
        // Every connection has a client, so this case does not occur.
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests;
