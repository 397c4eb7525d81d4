//! Log of requests to the API server at level debug, with headers at level trace. The layer is
//! above the layers that add credentials, so it does not log credentials.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

/// Logs each request to `server`.
#[derive(Debug, Clone)]
pub(super) struct RequestLogLayer {
    server: String,
}

impl RequestLogLayer {
    /// Returns the layer for the API server at this URL.
    pub(super) fn new(server: &str) -> Self {
        Self {
            server: server.trim_end_matches('/').to_owned(),
        }
    }
}

impl<S> Layer<S> for RequestLogLayer {
    type Service = RequestLog<S>;

    fn layer(&self, inner: S) -> RequestLog<S> {
        RequestLog {
            inner,
            server: self.server.clone(),
        }
    }
}

/// A service whose requests are logged.
#[derive(Debug, Clone)]
pub(super) struct RequestLog<S> {
    inner: S,
    server: String,
}

impl<S, B> Service<Request<Body>> for RequestLog<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let url = format!("{}{}", self.server, request.uri());
        let method = request.method().clone();
        for (header, value) in request.headers() {
            if !value.is_sensitive() && *header != http::header::AUTHORIZATION {
                tracing::trace!(%header, ?value, "header");
            }
        }
        let begun = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into);
            let milliseconds = begun.elapsed().as_millis();
            match &answer {
                Ok(response) => {
                    tracing::debug!(%method, url, status = %response.status(), milliseconds, "request");
                }
                Err(error) => {
                    tracing::debug!(%method, url, %error, milliseconds, "request");
                }
            }
            answer
        })
    }
}
