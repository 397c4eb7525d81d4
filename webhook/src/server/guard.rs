//! Authentication in front of admission: a request is served only if its path contains a current
//! token, and only while the registrations are intact. All other requests are rejected before their
//! body is read, and most of them before memory is used for the request. The module `certs` rotates
//! the tokens.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use bundle_core::diagnostic::codes;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::connections::{AcceptedRequest, Client, WaitingRequest};
use super::deadline::ReviewDeadline;
use crate::caller::Token;
use crate::shared::Shared;
use crate::telemetry::metrics::ReviewOutcome;
use crate::{certs, chain, registrations};

/// Minimum interval between reads of the Secret after unknown tokens. A read is necessary because
/// another replica may have rotated the tokens.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of one read of the Secret.
const TOKEN_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The routes behind the guard.
const ROUTES: [&str; 2] = ["/validate", "/mutate"];

struct Guard {
    shared: Arc<Shared>,
    admission: Router,
    /// Start of the last read of the Secret.
    refreshed: Mutex<Option<Instant>>,
}

/// The result of the gate for a request that the gate does not reject.
#[derive(Debug, Clone)]
enum Caller {
    /// The token of the request is valid.
    ApiServer(Arc<AcceptedRequest>),
    /// The token has a valid form, but is unknown. Another replica may have rotated the tokens.
    Unauthenticated {
        client: Arc<Client>,
        token: Token,
        waiting: Arc<WaitingRequest>,
    },
}

/// Returns the gate and the router of admission, for [`admission_listener::serve`]:
/// `/validate/TOKEN` and `/mutate/TOKEN` of `admission`, and 404 for all other paths.
///
/// [`admission_listener::serve`]: super::admission_listener::serve
pub fn gate_and_router(
    shared: Arc<Shared>,
    admission: Router,
) -> (
    impl Fn(&mut Request) -> Result<(), Response> + Clone + Send + Sync + 'static,
    Router,
) {
    let guard = Arc::new(Guard {
        shared,
        admission,
        refreshed: Mutex::default(),
    });
    let gate = {
        let guard = guard.clone();
        move |request: &mut Request| guard.check(request)
    };
    let router = Router::new().fallback(move |request: Request| {
        let guard = guard.clone();
        async move { guard.answer(request).await }
    });
    (gate, router)
}

/// Returns the route and the token of a request. Returns `None` for a request that no API server of
/// this installation would send.
fn route_and_token(request: &Request) -> Option<(&'static str, Token)> {
    let (route, token) = request.uri().path().rsplit_once('/')?;
    let route = ROUTES.into_iter().find(|known| *known == route)?;
    let token = Token::parse(token)?;
    (request.method() == Method::POST).then_some((route, token))
}

/// Removes all parts of the head that admission does not read. The route and the length and type of
/// the body remain.
fn strip(request: &mut Request, route: &'static str) {
    *request.uri_mut() = Uri::from_static(route);
    let headers = std::mem::take(request.headers_mut());
    for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE] {
        if let Some(value) = headers.get(&name) {
            // The value is copied, because it can reference the whole received buffer.
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                request.headers_mut().insert(name, value);
            }
        }
    }
}

impl Guard {
    /// Returns a response if the request is rejected immediately. This happens if no API server of
    /// this installation would send the request, or if too many requests wait for the tokens of
    /// another replica. No part of a rejected request is stored.
    fn check(&self, request: &mut Request) -> Result<(), Response> {
        // Every connection has a client, so this case does not occur.
        let Some(client) = request.extensions().get::<Arc<Client>>().cloned() else {
            return Err(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        };
        let Some((route, token)) = route_and_token(request) else {
            return Err(self.unknown(&client));
        };
        let limit = self.shared.settings.review_deadline;
        let query = request.uri().query();
        let deadline = ReviewDeadline::of_call(client.request_start(), query, limit);
        let caller = if self.shared.paths.accepts(&token, Instant::now()) {
            Caller::ApiServer(Arc::new(client.accept()))
        } else {
            let Some(waiting) = client.wait() else {
                return Err(self.unknown(&client));
            };
            Caller::Unauthenticated {
                client,
                token,
                waiting: Arc::new(waiting),
            }
        };
        // The headers are removed, because the unauthenticated request can wait.
        strip(request, route);
        request.extensions_mut().insert(deadline);
        request.extensions_mut().insert(caller);
        Ok(())
    }

    async fn answer(&self, mut request: Request) -> Response {
        let shared = &self.shared;
        let _accepted = match request.extensions_mut().remove::<Caller>() {
            Some(Caller::ApiServer(accepted)) => accepted,
            Some(Caller::Unauthenticated {
                client,
                token,
                waiting,
            }) => {
                if !self.is_accepted_after_refresh(&token).await {
                    return self.unknown(&client);
                }
                drop(waiting);
                Arc::new(client.accept())
            }
            // The gate adds the caller to every request, so this case does not occur.
            None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        };
        let Some(since) = shared.registrations.intact_since() else {
            return self.refused();
        };
        let Ok(response) = self.admission.clone().oneshot(request).await;
        // The response is not sent if the registrations were altered during the review, because the
        // response can contain a stamp.
        if shared.registrations.intact_since() == Some(since) {
            response
        } else {
            self.refused()
        }
    }

    /// Returns true if the token is valid after the next read of the Secret.
    async fn is_accepted_after_refresh(&self, token: &Token) -> bool {
        let paths = &self.shared.paths;
        let arrived = Instant::now();
        let mut refreshed = self.refreshed.lock().await;
        // Concurrent requests use the result of the same read.
        if refreshed.is_none_or(|began| began < arrived) {
            if let Some(began) = *refreshed {
                tokio::time::sleep_until(began + MIN_REFRESH_INTERVAL).await;
            }
            *refreshed = Some(Instant::now());
            let read = tokio::time::timeout(TOKEN_READ_TIMEOUT, certs::read_tokens(&self.shared));
            match read.await {
                Ok(Ok(tokens)) => paths.set(tokens),
                Ok(Err(error)) => tracing::warn!(error = chain(&error), "cannot read the tokens"),
                Err(_) => tracing::warn!(
                    "cannot read the tokens: no response within {TOKEN_READ_TIMEOUT:?}"
                ),
            }
        }
        drop(refreshed);
        paths.accepts(token, Instant::now())
    }

    fn unknown(&self, client: &Client) -> Response {
        client.reject();
        self.shared.metrics.unknown_caller();
        StatusCode::NOT_FOUND.into_response()
    }

    /// Returns a Kubernetes `Status` with an error. API servers return the message of the `Status`
    /// to the requester.
    fn refused(&self) -> Response {
        let code = codes::review::REGISTRATIONS_ALTERED;
        let outcome = ReviewOutcome::CannotTell;
        let metrics = &self.shared.metrics;
        metrics.review("other", "other", outcome, Some(code), Duration::ZERO);
        let finding = registrations::altered(&self.shared.registrations.faults());
        let hint = finding.hint.as_deref().unwrap_or_default();
        let message = format!("{code}: {finding}\nhint: {hint}");
        let status = json!({
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "reason": "ServiceUnavailable",
            "code": 503,
            "message": message,
        });
        (StatusCode::SERVICE_UNAVAILABLE, Json(status)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: Method, path: &str) -> Request {
        let request = axum::http::Request::builder().method(method).uri(path);
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn strip_keeps_only_route_and_content_headers() {
        let mut request = request(Method::POST, &format!("/validate/x?{}", "a".repeat(9000)));
        for (name, value) in [
            ("content-length", "5"),
            ("content-type", "application/json"),
            ("authorization", "Bearer x"),
            ("x", "y"),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        strip(&mut request, "/validate");
        assert_eq!(request.uri(), "/validate");
        let kept: Vec<_> = request
            .headers()
            .keys()
            .map(axum::http::HeaderName::as_str)
            .collect();
        assert_eq!(kept, ["content-length", "content-type"]);
    }

    #[test]
    fn accepts_only_post_requests_to_the_two_routes_with_a_token() {
        let token = Token::random();
        let text = token.as_str();
        for route in ROUTES {
            let call = request(Method::POST, &format!("{route}/{text}"));
            assert_eq!(route_and_token(&call), Some((route, token.clone())));
            let call = request(Method::POST, &format!("{route}/{text}?timeout=10s"));
            assert_eq!(route_and_token(&call), Some((route, token.clone())));
        }
        for path in [
            "/validate".to_owned(),
            "/validate/".to_owned(),
            "/validate/short".to_owned(),
            format!("/{text}"),
            format!("/validate/{text}/"),
            format!("/prefix/validate/{text}"),
            format!("//validate/{text}"),
            format!("/Validate/{text}"),
        ] {
            assert_eq!(
                route_and_token(&request(Method::POST, &path)),
                None,
                "{path}"
            );
        }
        let get = request(Method::GET, &format!("/validate/{text}"));
        assert_eq!(route_and_token(&get), None);
    }
}
