//! The listener of the content service and its limits. The limits are separate from the limits of
//! admission, so that downloads and uploads never delay reviews.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::connections::Limits;
use super::tls_listener::{self, ShutdownPeriods, TlsCertificates, TlsLimits};

/// Maximum number of concurrent requests of one connection.
const STREAMS: u32 = 4;
/// The limits of the listener. A client is authenticated after it has sent a valid token.
const LIMITS: TlsLimits = TlsLimits {
    connections: Limits {
        unauthenticated: 32,
        min_age: Duration::ZERO,
        delayed: 1,
        max_age: Duration::from_secs(10),
        max_stall: Duration::from_secs(20),
        // A handshake and the largest request head fit into this size.
        received: 32 << 10,
        authenticated: 32,
        authenticated_by_address: 16,
        // Requests wait for their authentication in the handler, not in the listener.
        waiting: 0,
        waiting_in_all: 0,
        waiting_by_address: 0,
        rejected: STREAMS,
    },
    streams: STREAMS,
    // Uploads are written to disk as they arrive.
    stream_window: 16 << 10,
};

/// Serves requests until `shutdown`, and then shuts down gracefully within the periods in `drain`.
/// `gated` is the gate that checks each request, and the router behind this gate.
pub async fn serve<G>(
    listener: TcpListener,
    gated: (G, Router),
    access: TlsCertificates,
    drain: ShutdownPeriods,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    G: Fn(&mut Request) -> Result<(), Response> + Clone + Send + Sync + 'static,
{
    tls_listener::serve(listener, gated, access, LIMITS, drain, shutdown).await
}
