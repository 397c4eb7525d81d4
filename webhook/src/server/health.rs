//! `/healthz`, `/readyz` and `/metrics`, over plain HTTP for the kubelet and Prometheus.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto as http_builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connections::{Connections, Limits};
use crate::readiness::Readiness;
use crate::retry::delays;
use crate::telemetry::metrics::{CONTENT_TYPE, Metrics};

/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// Limits of connections. This listener authenticates no client.
const CONNECTIONS: Limits = Limits {
    unauthenticated: 32,
    min_age: Duration::ZERO,
    delayed: 0,
    max_age: Duration::from_secs(10),
    max_stall: Duration::from_secs(5),
    received: 4 * HEAD_BYTES,
    authenticated: 0,
    authenticated_by_address: 0,
    rejected: 0,
    waiting: 0,
    waiting_in_all: 0,
    waiting_by_address: 0,
};

/// The state that the endpoints return.
#[derive(Clone)]
pub struct Health {
    /// The state for `/readyz`.
    pub readiness: Arc<Readiness>,
    /// The metrics for `/metrics`.
    pub metrics: Metrics,
}

/// Serves until `shutdown`, on a thread with its own runtime. Therefore probes get a response even
/// if all other threads are busy.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let listener = listener.into_std()?;
    let (ended, end) = oneshot::channel();
    thread::Builder::new()
        .name("health".to_owned())
        .spawn(move || {
            // Sending fails only if the process ends and the receiver was dropped.
            drop(ended.send(serve_here(listener, health, shutdown)));
        })?;
    end.await.unwrap_or_else(|_| {
        Err(io::Error::other(
            "the thread of the health endpoint panicked",
        ))
    })
}

fn serve_here(
    listener: std::net::TcpListener,
    health: Health,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        answer(listener, router(health), shutdown).await;
        Ok(())
    })
}

/// Serves one request per connection, so that no client occupies a connection for a long time.
async fn answer(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let connections = Connections::new(CONNECTIONS);
    let mut http = http_builder::Builder::new(TokioExecutor::new()).http1_only();
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false);
    let http = Arc::new(http);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let connection = connections.admit(stream, peer.ip());
                    let service = TowerToHyperService::new(router.clone());
                    let http = http.clone();
                    open.spawn(async move {
                        let serving = http.serve_connection(TokioIo::new(connection), service);
                        // Errors of clients that have disconnected are ignored.
                        drop(serving.await);
                    });
                    // The task of this connection must start before a further connection can close
                    // this connection.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the health endpoint");
                    tokio::time::sleep(delays::ACCEPT).await;
                }
            },
        }
    }
    drop(listener);
    let finished = async { while open.join_next().await.is_some() {} };
    // The remaining connections wait for a request of their client.
    drop(tokio::time::timeout(HEAD_TIMEOUT, finished).await);
}

/// Returns the router. `/livez` is the newer name of `/healthz`.
pub fn router(health: Health) -> Router {
    // The response shows that the process is running.
    let alive = || async { "ok\n" };
    Router::new()
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(page))
        .with_state(health)
}

async fn ready(State(health): State<Health>) -> impl IntoResponse {
    let status = if health.readiness.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, health.readiness.report())
}

async fn page(State(health): State<Health>) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        health.metrics.page(),
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::readiness::Gate;

    async fn ask(health: &Health, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(health.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn liveness_is_independent_of_readiness() {
        let health = Health {
            readiness: Arc::default(),
            metrics: Metrics::default(),
        };
        assert_eq!(ask(&health, "/healthz").await.0, StatusCode::OK);
        let (status, body) = ask(&health, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("[-]certificate waiting"), "{body}");
        for gate in [
            Gate::Api,
            Gate::Certificate,
            Gate::Classes,
            Gate::Policies,
            Gate::Lease,
        ] {
            health.readiness.open(gate);
        }
        let registrations = health.readiness.registrations();
        registrations.set(Some(jiff::Timestamp::UNIX_EPOCH), Vec::new());
        assert_eq!(ask(&health, "/readyz").await.0, StatusCode::OK);
        health.readiness.drain();
        assert_eq!(
            ask(&health, "/readyz").await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(ask(&health, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn health_is_served_while_all_threads_of_the_main_runtime_are_busy() {
        let health = Health {
            readiness: Arc::default(),
            metrics: Metrics::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, health, shutdown.clone()));
        tokio::task::yield_now().await;
        // The runtime of the test has only this thread, and the thread blocks until the page was
        // received.
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
        shutdown.cancel();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn health_is_served_despite_silent_connections_above_the_limit() {
        let health = Health {
            readiness: Arc::default(),
            metrics: Metrics::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, health, shutdown.clone()));
        tokio::task::yield_now().await;
        let mut silent: Vec<_> = (0..2 * CONNECTIONS.unauthenticated)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
        // The oldest connection was closed for newer connections.
        assert!(matches!(silent[0].read(&mut [0]), Ok(0) | Err(_)));
        shutdown.cancel();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn serves_metrics_and_rejects_other_paths() {
        let health = Health {
            readiness: Arc::default(),
            metrics: Metrics::default(),
        };
        assert!(ask(&health, "/metrics").await.1.ends_with("# EOF\n"));
        assert_eq!(ask(&health, "/secrets").await.0, StatusCode::NOT_FOUND);
    }
}
