//! `/healthz`, `/readyz` and `/metrics`, over plain HTTP for the kubelet and Prometheus.
//! Not here: what readiness means (readiness) and what is counted (metrics).

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::readiness::Readiness;

/// What the pages show.
#[derive(Clone)]
pub struct Health {
    /// Shown on `/readyz`.
    pub readiness: Arc<Readiness>,
    /// Shown on `/metrics`.
    pub metrics: Metrics,
}

/// Serves until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    shutdown: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router(health))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

/// The three pages; `/livez` is `/healthz` under its newer name.
pub fn router(health: Health) -> Router {
    // That this answers at all shows that the loop turns.
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
    async fn alive_is_not_ready_and_readiness_ends_before_life_does() {
        let health = Health {
            readiness: Arc::default(),
            metrics: Metrics::default(),
        };
        assert_eq!(ask(&health, "/healthz").await.0, StatusCode::OK);
        let (status, body) = ask(&health, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("[-]certificate waiting"), "{body}");
        for gate in [Gate::Api, Gate::Certificate, Gate::Classes, Gate::Policies] {
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
    async fn metrics_are_shown_and_other_pages_are_not_there() {
        let health = Health {
            readiness: Arc::default(),
            metrics: Metrics::default(),
        };
        assert!(ask(&health, "/metrics").await.1.ends_with("# EOF\n"));
        assert_eq!(ask(&health, "/secrets").await.0, StatusCode::NOT_FOUND);
    }
}
