//! Sends a request to one location of a repository: authorization, redirects, retries after 429 and
//! 5xx, and mapping of statuses to errors.

use std::sync::Arc;
use std::time::Duration;

use backon::Retryable as _;
use jiff::fmt::rfc2822;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, LOCATION,
    RANGE, RETRY_AFTER,
};
use reqwest::{Method, Request, Response, StatusCode};
use url::Url;

use super::{RegistryRequest, RequestTarget};
use crate::clock::timestamp;
use crate::limits::REDIRECTS;
use crate::progress::Progress;
use crate::registry::auth::challenge::Challenge;
use crate::registry::auth::endpoint::{ConnectionSecurity, DiscoveryGroup, Endpoint, challenge_of};
use crate::registry::auth::login::Login;
use crate::registry::http::body::BlobPart;
use crate::registry::http::error_message::detail_of;
use crate::registry::http::pools::{authority, may_stay_plain};
use crate::registry::http::zone::NetworkZone;
use crate::registry::retry::MAX_WAIT;
use crate::registry::{Client, RegistryErrorReason, Repository};

/// Failed attempt to send a request.
pub(super) struct FailedAttempt {
    pub(super) reason: RegistryErrorReason,
    /// Wait that the registry requested.
    wait: Option<Duration>,
    pub(super) cause: FailureCause,
}

/// Part of a request that caused a failed attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum FailureCause {
    /// The registry failed.
    Registry,
    /// The target of a redirect failed.
    RedirectTarget,
    /// A read below the repository stalled. Either the registry does not respond, or it stores
    /// content before it responds.
    RegistryOrContent,
}

impl From<RegistryErrorReason> for FailedAttempt {
    fn from(reason: RegistryErrorReason) -> Self {
        Self {
            reason,
            wait: None,
            cause: FailureCause::Registry,
        }
    }
}

impl Client {
    /// Sends a request until it succeeds or fails with an error that a retry cannot resolve.
    pub(super) async fn send_to(
        &self,
        ask: &RegistryRequest<'_>,
        location: &Repository,
    ) -> Result<Response, FailedAttempt> {
        let ask = &RegistryRequest {
            repository: location,
            ..ask.clone()
        };
        (|| self.attempt(ask))
            .retry(self.deadlines.request_pauses())
            .when(|failed: &FailedAttempt| {
                // The registry may have stored a part of an upload. Therefore the caller, and not
                // this function, retries such a request after it has checked the upload. If the
                // registry requested a wait, it has rejected the whole request, so this function
                // can retry.
                let clean = ask.part.is_none() || failed.wait.is_some();
                clean && matches!(failed.reason, RegistryErrorReason::Busy { status, .. } if status != 501)
            })
            .adjust(
                |failed: &FailedAttempt, planned| match (planned, failed.wait) {
                    (Some(_), Some(wait)) => (wait <= MAX_WAIT).then_some(wait),
                    (planned, _) => planned,
                },
            )
            .await
    }

    async fn attempt(&self, ask: &RegistryRequest<'_>) -> Result<Response, FailedAttempt> {
        let registry = ask.repository.registry.as_str();
        let security = self.security_of(registry);
        let (endpoint, response) = match &self.discoveries {
            Some(discoveries)
                if ask.is_read_of_path() && !self.endpoints.is_known(registry, security) =>
            {
                // The future is boxed, because it is large and needed only once for each registry.
                Box::pin(self.send_speculatively(ask, security, discoveries)).await?
            }
            _ => {
                let endpoint = self.endpoints.get(&self.http, registry, security).await?;
                let response = self.authorized(ask, &endpoint).await?;
                (endpoint, response)
            }
        };
        // Only the registry itself may name its token service. Otherwise a redirect target could
        // collect the passwords for the registry.
        let on_registry = response.url().origin() == endpoint.base.origin();
        if response.status() != StatusCode::UNAUTHORIZED || !on_registry {
            return self.check_status(ask, response).await;
        }
        // The registry rejects the token: it expired early, or this request needs more permissions
        // than `GET /v2/`.
        self.tokens.forget(ask.token_scope());
        let endpoint = challenge_of(response.headers())
            .and_then(|challenge| self.endpoints.update(registry, security, challenge));
        match endpoint {
            Some(endpoint) => {
                let response = self.authorized(ask, &endpoint).await?;
                self.check_status(ask, response).await
            }
            None => self.check_status(ask, response).await,
        }
    }

    /// Sends a read without credentials while the endpoint of the registry is discovered. Returns
    /// the endpoint and the response.
    ///
    /// The response is used only if a read after the discovery would be the same request: same base
    /// URL, no authentication. Otherwise the read is sent again. For example, a registry that
    /// requires authentication can respond with status 404 to a read without credentials, although
    /// the content exists.
    async fn send_speculatively(
        &self,
        ask: &RegistryRequest<'_>,
        security: ConnectionSecurity,
        discoveries: &DiscoveryGroup,
    ) -> Result<(Arc<Endpoint>, Response), FailedAttempt> {
        let registry = ask.repository.registry.as_str();
        let expected = Endpoint {
            base: self.endpoints.first_base(registry)?,
            challenge: None,
            // The strictest zone. It has no effect, because the zone of a redirect comes from the
            // response.
            zone: NetworkZone::Public,
        };
        self.http.add_registry_host(&expected.base);
        let (endpoint, response) = futures::join!(
            discoveries.discover(&self.endpoints, &self.http, registry, security),
            self.authorized(ask, &expected),
        );
        let endpoint = endpoint?;
        if endpoint.challenge.is_none() && endpoint.base == expected.base {
            return Ok((endpoint, response?));
        }
        // The connection of the discarded response can be used again.
        drop(response);
        let response = self.authorized(ask, &endpoint).await?;
        Ok((endpoint, response))
    }

    async fn authorized(
        &self,
        ask: &RegistryRequest<'_>,
        endpoint: &Endpoint,
    ) -> Result<Response, FailedAttempt> {
        let authorization = self
            .tokens
            .authorize(&self.http, endpoint, ask.token_scope())
            .await?;
        let (mut url, mut reach) = match &ask.target {
            RequestTarget::Path(path) => {
                let url = endpoint
                    .base
                    .join(&format!("{}/{path}", ask.repository.path))
                    .map_err(|error| {
                        RegistryErrorReason::Malformed(format!("`{path}` is not a path: {error}"))
                    })?;
                (url, endpoint.zone)
            }
            RequestTarget::Url(received) => (received.url.clone(), received.zone),
        };
        for _ in 0..=REDIRECTS {
            let on_registry = url.origin() == endpoint.base.origin();
            let from = if on_registry {
                NetworkZone::Local
            } else {
                reach
            };
            let mut request = Request::new(ask.method.clone(), url.clone());
            let headers = request.headers_mut();
            if let Some(accept) = ask.accept {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            if ask.from > 0
                && let Ok(value) = HeaderValue::from_str(&format!("bytes={}-", ask.from))
            {
                headers.insert(RANGE, value);
            }
            // Credentials are sent only to the registry, never to redirect targets.
            if let Some(value) = &authorization
                && on_registry
            {
                headers.insert(AUTHORIZATION, value.clone());
            }
            if let Some((media_type, bytes)) = &ask.content {
                if let Ok(value) = HeaderValue::from_str(media_type) {
                    headers.insert(CONTENT_TYPE, value);
                }
                // The header is also sent for an empty body, because some registries reject writes
                // without this header.
                headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                *request.body_mut() = Some(bytes.clone().into());
            }
            let sent = match &ask.part {
                Some(part) => {
                    set_body(&mut request, part, &self.progress);
                    self.http.send_watched(request, part, from).await
                }
                None => self.http.send_from(request, from).await,
            };
            let response = sent.map_err(|reason| {
                let is_stalled = matches!(reason, RegistryErrorReason::Stalled { .. });
                let cause = if !on_registry {
                    FailureCause::RedirectTarget
                } else if is_stalled && ask.is_read_of_path() {
                    FailureCause::RegistryOrContent
                } else {
                    FailureCause::Registry
                };
                FailedAttempt {
                    reason,
                    wait: None,
                    cause,
                }
            })?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let here = NetworkZone::of_response(&url, response.remote_addr());
            reach = if on_registry { here } else { reach.min(here) };
            url = redirect_target(&url, &response, &ask.method)?;
        }
        Err(RegistryErrorReason::Redirect {
            to: authority(&url),
            why: "too many redirects",
        }
        .into())
    }

    async fn check_status(
        &self,
        ask: &RegistryRequest<'_>,
        response: Response,
    ) -> Result<Response, FailedAttempt> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::NOT_FOUND {
            return Err(RegistryErrorReason::NotFound.into());
        }
        let wait = retry_after(&response);
        let challenge = challenge_of(response.headers());
        let detail = detail_of(&self.http, response).await;
        let status = status.as_u16();
        let reason = match status {
            401 | 403 => self.denied(ask, challenge, status, detail),
            429 | 500.. => RegistryErrorReason::Busy { status, detail },
            _ => RegistryErrorReason::Refused { status, detail },
        };
        Err(FailedAttempt {
            wait,
            ..reason.into()
        })
    }
}

/// Sets the part as the body of the request.
fn set_body(request: &mut Request, part: &BlobPart<'_>, progress: &Arc<dyn Progress>) {
    let headers = request.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(CONTENT_LENGTH, HeaderValue::from(part.length));
    if request.method() == Method::PATCH
        && let Some(last) = (part.from + part.length).checked_sub(1)
        && let Ok(value) = HeaderValue::from_str(&format!("{}-{last}", part.from))
    {
        request.headers_mut().insert(CONTENT_RANGE, value);
    }
    *request.body_mut() = Some(part.body(progress));
}

impl Client {
    /// Returns the reason for a status 401 or 403: rejected credentials, an expired token, or
    /// missing permissions.
    fn denied(
        &self,
        ask: &RegistryRequest<'_>,
        challenge: Option<Challenge>,
        status: u16,
        detail: String,
    ) -> RegistryErrorReason {
        let (who, login) = self.tokens.identity_and_login(ask.repository);
        let service = ask.repository.registry.clone();
        match (status, login, challenge) {
            (401, Some(Login::Password { .. }), Some(Challenge::Basic)) => {
                RegistryErrorReason::LoginRefused {
                    service,
                    who,
                    status,
                    detail,
                }
            }
            (401, Some(Login::Bearer(_)), Some(Challenge::Bearer { error, .. }))
                if error.as_deref() != Some("insufficient_scope") =>
            {
                RegistryErrorReason::TokenRefused { service }
            }
            (
                _,
                _,
                Some(Challenge::Bearer {
                    error: Some(error), ..
                }),
            ) if error == "insufficient_scope" => RegistryErrorReason::Denied {
                who,
                status,
                detail: format!(
                    ": no permission to {} here",
                    if ask.push { "push" } else { "pull" }
                ),
            },
            _ => RegistryErrorReason::Denied {
                who,
                status,
                detail,
            },
        }
    }
}

/// Returns the target of a redirect, or an error if the redirect is not allowed.
pub(in crate::registry) fn redirect_target(
    from: &Url,
    response: &Response,
    method: &Method,
) -> Result<Url, RegistryErrorReason> {
    let refuse = |to: String, why| Err(RegistryErrorReason::Redirect { to, why });
    let Some(to) = response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| from.join(text).ok())
    else {
        return refuse(
            "an unknown target".to_owned(),
            "the header Location has no valid URL",
        );
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        return refuse(authority(&to), "requests that write must not be redirected");
    }
    if to.scheme() == "https" || may_stay_plain(from, &to) {
        Ok(to)
    } else {
        refuse(authority(&to), "the target does not use TLS")
    }
}

/// Parses `Retry-After`, which contains seconds or a date.
fn retry_after(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let then = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    // Dates in the past mean no wait.
    Some(Duration::try_from(then.duration_since(timestamp())).unwrap_or_default())
}
