//! Retries of requests after status 429, as in kubectl. The retry policy of the client library
//! would also retry requests after status 503 and 504.

use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use kube::client::Body;
use tower::BoxError;
use tower::retry::Policy;

/// Largest number of retries of one request.
const TRIES: u32 = 5;
/// Longest delay before a retry, regardless of the server's `Retry-After`.
const LONGEST: Duration = Duration::from_secs(5);

/// Retries requests that got status 429. Each retry waits for the delay that the server requires.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::Instant;
    use tower::{Service as _, ServiceExt as _};

    use super::*;

    /// Sends one request to a server that responds with status 429 to the first `rejected`
    /// attempts. Returns the status of the response, the number of attempts, and the delay.
    #[expect(clippy::disallowed_methods, reason = "it measures a paused clock")]
    async fn send(rejected: u32, retry_after: Option<&'static str>) -> (StatusCode, u32, Duration) {
        let attempts = Arc::<AtomicU32>::default();
        let counted = attempts.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                assert_eq!(request.uri().path(), "/api");
                let mut response = Response::builder().header("attempt", number);
                if number < rejected {
                    response = response.status(StatusCode::TOO_MANY_REQUESTS);
                }
                if let Some(delay) = retry_after {
                    response = response.header(header::RETRY_AFTER, delay);
                }
                Ok::<_, BoxError>(response.body(())?)
            }
        });
        let mut client = tower::retry::Retry::new(RetryAfter::default(), server);
        let request = Request::get("/api").body(Body::empty()).unwrap();
        let began = Instant::now();
        let response = client.ready().await.unwrap().call(request).await.unwrap();
        let attempts = attempts.load(Ordering::Relaxed);
        // The client returns the response of the last attempt.
        assert_eq!(
            response.headers()["attempt"],
            (attempts - 1).to_string().as_str()
        );
        (response.status(), attempts, began.elapsed())
    }

    fn is_about(delay: Duration, seconds: u64) -> bool {
        let expected = Duration::from_secs(seconds);
        delay >= expected && delay < expected + Duration::from_millis(500)
    }

    #[tokio::test(start_paused = true)]
    async fn retries_after_429_with_the_delay_of_retry_after() {
        for (retry_after, seconds) in [
            (Some("2"), 4),
            (Some("0"), 0),
            // Delays above `LONGEST` are shortened to `LONGEST`.
            (Some("3600"), 10),
            // If `Retry-After` is missing or is not a number, the delay is one second.
            (None, 2),
            (Some("Thu, 26 Nov 2026 20:00:00 GMT"), 2),
        ] {
            let (status, attempts, delay) = send(2, retry_after).await;
            assert_eq!((status, attempts), (StatusCode::OK, 3), "{retry_after:?}");
            assert!(is_about(delay, seconds), "{retry_after:?}: {delay:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn returns_the_last_response_if_every_attempt_fails_with_429() {
        for retry_after in [Some("1"), None] {
            let (status, attempts, delay) = send(u32::MAX, retry_after).await;
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(attempts, TRIES + 1);
            assert!(is_about(delay, u64::from(TRIES)), "{delay:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_retry_other_statuses_and_failed_connections() {
        let mut policy = RetryAfter::default();
        let mut request = Request::get("/api").body(Body::empty()).unwrap();
        for status in [200, 403, 409, 500, 503] {
            let response = Response::builder().status(status).body(()).unwrap();
            let retry = policy.retry(&mut request, &mut Ok(response));
            assert!(retry.is_none(), "{status}");
        }
        let mut failed: Result<Response<()>, BoxError> = Err("connection reset".into());
        assert!(policy.retry(&mut request, &mut failed).is_none());
    }

    #[tokio::test]
    async fn retried_request_has_the_same_method_headers_and_body() {
        let request = Request::patch("/api?force=true")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(b"{}".to_vec()))
            .unwrap();
        let mut policy = RetryAfter::default();
        let copy = Policy::<_, Response<()>, _>::clone_request(&mut policy, &request).unwrap();
        assert_eq!(
            (copy.method(), copy.uri(), copy.headers()),
            (request.method(), request.uri(), request.headers())
        );
        let body = copy.into_body().collect_bytes().await.unwrap();
        assert_eq!(body.as_ref(), b"{}");
    }
}
