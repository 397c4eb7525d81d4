//! Retries of requests after status 429, as in kubectl. The retry policy of the client library
//! would also retry rejected requests.

use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use kube::client::Body;
use tower::BoxError;
use tower::retry::Policy;

/// Largest number of retries of one request.
const TRIES: u32 = 5;
/// Longest delay before a retry, regardless of the server's `Retry-After`.
const LONGEST: Duration = Duration::from_secs(5);

/// Retries requests after status 429, after the delay that the server requires.
#[derive(Debug, Clone, Default)]
pub struct RetryAfter {
    tried: u32,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for RetryAfter {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let response = result.as_ref().ok()?;
        if response.status() != StatusCode::TOO_MANY_REQUESTS || self.tried >= TRIES {
            return None;
        }
        self.tried += 1;
        let pause = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map_or(Duration::from_secs(1), Duration::from_secs);
        Some(tokio::time::sleep(pause.min(LONGEST)))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // Only bodies in memory can be sent again. All bodies of this crate are in memory.
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}
