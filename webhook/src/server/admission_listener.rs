//! The TLS listener that admission is served on: limits, deadlines, and an end that finishes reviews in flight.
//! Not here: which certificate (certs) and which answer (admission).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::certs::Resolver;

/// A review of an update carries two objects of up to 3 MiB each, with their managed fields.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A silent connection is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How to end.
#[derive(Debug, Clone, Copy)]
pub struct Drain {
    /// How long to serve on, while the API server learns that we go.
    pub delay: Duration,
    /// How long reviews in flight may take after that.
    pub timeout: Duration,
}

/// Serves `router` until `shutdown`, and then for as long as `drain` says. `deadline` bounds each request from its first
/// byte: the review's own deadline has to be shorter, so that its answer is an answer.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    resolver: Arc<Resolver>,
    deadline: Duration,
    drain: Drain,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let handle: Handle<SocketAddr> = Handle::new();
    let mut server =
        axum_server::from_tcp_rustls(listener.into_std()?, tls(resolver)?)?.handle(handle.clone());
    let http = server.http_builder();
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE);
    let serving = server.serve(limited(router, deadline).into_make_service());
    let ending = async {
        shutdown.cancelled().await;
        tokio::time::sleep(drain.delay).await;
        handle.graceful_shutdown(Some(drain.timeout));
        // The server ends by itself from here.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = serving => ended,
        () = ending => Ok(()),
    }
}

/// The limits that hold for every request.
fn limited(router: Router, deadline: Duration) -> Router {
    router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            within(deadline, request, next)
        }))
}

async fn within(deadline: Duration, request: Request, next: Next) -> Response {
    match tokio::time::timeout(deadline, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response(),
    }
}

fn tls(resolver: Arc<Resolver>) -> io::Result<RustlsConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}
