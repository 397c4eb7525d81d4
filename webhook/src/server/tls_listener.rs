//! A TLS listener: limits, authentication of clients, and graceful shutdown. The module `certs`
//! provides the certificate.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http;
use axum::response::Response;
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
use super::connections::{Connections, Limits};
use crate::certs::Resolver;

/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request, in bytes. With HTTP/1, it is also the maximum size of the
/// buffered body. API servers send a path of 60 bytes, about twelve short headers, and, if
/// configured, a token of a few KiB.
pub(super) const HEAD_BYTES: u16 = 16 << 10;
/// Interval of keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The limits for connections and requests of a listener.
#[derive(Debug, Clone, Copy)]
pub struct TlsLimits {
    /// Limits of the number, age and size of connections.
    pub connections: Limits,
    /// Maximum number of concurrent requests of one connection.
    pub streams: u32,
    /// HTTP/2 flow-control window of a request, in bytes. The window of the connection is large
    /// enough for all its requests. A client can use one connection for many users, so waiting
    /// bodies must not fill the window of the connection.
    pub stream_window: u32,
}

/// The serving certificate, and the authorities of accepted client certificates.
#[derive(Debug)]
pub struct TlsCertificates {
    /// The serving certificate.
    pub resolver: Arc<Resolver>,
    /// Clients must present a certificate of an authority in this file (PEM). `None`: no client
    /// certificate is required.
    pub client_ca_file: Option<PathBuf>,
}

/// The phases of a graceful shutdown.
#[derive(Debug, Clone, Copy)]
pub struct ShutdownPeriods {
    /// Time for which the server still accepts requests. After this time, the API server knows that
    /// this replica ends.
    pub delay: Duration,
    /// Time limit for requests in progress. It begins after `delay`.
    pub timeout: Duration,
}

/// A router behind a gate. The gate returns the response to a rejected request immediately, so that
/// no part of the request is stored. This is necessary because a client can send many requests
/// before its connection closes.
#[derive(Debug, Clone)]
struct GatedService<G> {
    gate: G,
    router: Router,
}

impl<G, B> Service<http::Request<B>> for GatedService<G>
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

/// Serves `router` until `shutdown`, and then shuts down gracefully within the periods in `drain`.
/// `gate` checks each request before `router`, and returns the response to a rejected request.
pub async fn serve<G>(
    listener: TcpListener,
    (gate, router): (G, Router),
    access: TlsCertificates,
    limits: TlsLimits,
    drain: ShutdownPeriods,
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
    let connections = Connections::new(limits.connections);
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
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(HEAD_BYTES.into())
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.stream_window * limits.streams);
    let gated = GatedService { gate, router };
    let serving = server.serve(ServiceExt::<Request>::into_make_service(gated));
    let ending = async {
        shutdown.cancelled().await;
        tokio::time::sleep(drain.delay).await;
        handle.graceful_shutdown(Some(drain.timeout));
        // This future never ends: the server ends after all its connections have ended.
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
            // Sessions are not resumed, because a resumed session would not be checked against
            // changed authorities.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}
