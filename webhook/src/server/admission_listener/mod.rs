//! The TLS listener of admission: limits, deadlines, and graceful shutdown. `certs` provides the
//! certificate.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{self, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::future::RouteFuture;
use axum::{Router, ServiceExt};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use futures::future::Either;
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::client_authority::ClientAuthority;
use super::connections::{Client, Connections, Limits};
use super::responses::{self, SEND_TIMEOUT};
use crate::certs::Resolver;

/// Maximum size of a body, in bytes. The review of an update has two objects of up to 3 MiB each,
/// with their managed fields.
pub(crate) const BODY_LIMIT: usize = 8 << 20;
/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request, in bytes; with HTTP/1 also of the buffered body. API
/// servers send a path of 60 bytes, about twelve short headers, and, if configured, a token of a
/// few KiB.
const HEAD_BYTES: u16 = 16 << 10;
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
/// Concurrent requests of one connection. API servers open more connections if they need them.
const STREAMS: u32 = 32;
/// HTTP/2 flow-control window of a request, in bytes. Bodies wait there for their share of memory.
const STREAM_WINDOW: u32 = 10 << 10;
/// HTTP/2 flow-control window of a connection, in bytes. An API server uses one connection for the
/// reviews of many users, so waiting bodies must not fill the window of the connection.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS;
/// Interval of keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The serving certificate, and the accepted clients.
#[derive(Debug)]
pub struct Access {
    /// The serving certificate.
    pub resolver: Arc<Resolver>,
    /// Clients must present a certificate of an authority in this file (PEM). `None`: no client
    /// certificate is required.
    pub client_ca_file: Option<PathBuf>,
}

/// The phases of a graceful shutdown.
#[derive(Debug, Clone, Copy)]
pub struct Drain {
    /// Time to serve requests until the API server knows that this replica ends.
    pub delay: Duration,
    /// Time limit after that for reviews in flight.
    pub timeout: Duration,
}

/// A router behind a gate. The gate returns the response to a rejected request at once, so that
/// nothing of the request is stored: a client can send many before a connection closes.
#[derive(Debug, Clone)]
struct Gated<G> {
    gate: G,
    router: Router,
}

impl<G, B> Service<http::Request<B>> for Gated<G>
where
    G: Fn(&mut Request) -> Result<(), Response>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, RouteFuture<Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let mut request = request.map(Body::new);
        match (self.gate)(&mut request) {
            Ok(()) => Either::Right(self.router.call(request)),
            Err(rejection) => Either::Left(ready(Ok(rejection))),
        }
    }
}

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
    let handle: Handle<SocketAddr> = Handle::new();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let load = |file| ClientAuthority::load(file, provider.clone());
    let clients = access.client_ca_file.map(load).transpose()?.map(Arc::new);
    let config = tls(provider.clone(), access.resolver, clients.clone())?;
    let connections = Connections::new(CONNECTIONS);
    let mut server = axum_server::from_tcp_rustls(listener.into_std()?, config)?
        .map(|tls| tls.acceptor(connections))
        .handle(handle.clone());
    let http = server.http_builder();
    http.http1()
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES.into())
        .header_read_timeout(HEAD_TIMEOUT);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES.into())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let router = limited(router, deadline);
    let gated = Gated { gate, router };
    let serving = server.serve(ServiceExt::<Request>::into_make_service(gated));
    let ending = async {
        shutdown.cancelled().await;
        tokio::time::sleep(drain.delay).await;
        handle.graceful_shutdown(Some(drain.timeout));
        // The server ends after its connections.
        std::future::pending::<()>().await;
    };
    let following = async {
        match &clients {
            Some(clients) => clients.follow().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = serving => ended,
        () = ending => Ok(()),
        () = following => Ok(()),
    }
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

fn tls(
    provider: Arc<CryptoProvider>,
    resolver: Arc<Resolver>,
    clients: Option<Arc<ClientAuthority>>,
) -> io::Result<RustlsConfig> {
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = match clients {
        None => builder.with_no_client_auth().with_cert_resolver(resolver),
        Some(clients) => {
            let mut config = builder
                .with_client_cert_verifier(clients)
                .with_cert_resolver(resolver);
            // A resumed session would skip the check against changed authorities.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}

#[cfg(test)]
mod tests;
