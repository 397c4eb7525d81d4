//! Receives a review: reserves memory, reads the body, computes the memory of the parsed review,
//! and parses the review. The module `review` defines the content of a review.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest, Request as HttpRequest};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::{Code, Finding, codes};
use bundle_core::review::{Verdict, text};
use bundle_core::text::bounded;
use futures::StreamExt as _;
use kube::core::admission::AdmissionResponse;
use serde_json::Value;
use tokio::time::Instant;

use super::review::{self, Envelope, Request, RequestEnvelope};
use super::{Admission, Lookups, rejections};
use crate::budget::{self, Budget, SMALL_BODY, Share, WorkerThread, address_key, requester_key};
use crate::server::admission_listener::BODY_LIMIT;
use crate::server::connections::Client;
use crate::server::responses::ResponseShares;
use crate::telemetry::metrics::ReviewOutcome;

/// Time limit for receiving a body, in addition to the time for its size at `MIN_BODY_RATE`.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum rate at which a body must arrive, in bytes per second. API servers are in the same
/// network, so they send bodies faster.
const MIN_BODY_RATE: u64 = 1 << 20;

/// Maximum length of the message about an invalid review, in bytes.
const MESSAGE_BYTES: usize = 512;

/// A parsed review, with its reserved memory.
pub(super) struct ReceivedReview {
    pub(super) request: Request,
    /// Time at which the last byte of the review arrived.
    pub(super) started: Instant,
    share: Share,
}

/// The body of a review, with its reserved memory. The memory is released after the body is
/// dropped.
struct HeldBody {
    bytes: Vec<u8>,
    _share: Share,
}

impl<L: Lookups> FromRequest<Arc<Admission<L>>> for ReceivedReview {
    type Rejection = Response;

    async fn from_request(
        request: HttpRequest,
        admission: &Arc<Admission<L>>,
    ) -> Result<Self, Response> {
        admission.receive(request).await
    }
}

impl<L: Lookups> Admission<L> {
    /// Returns the response to a review. The response uses the reserved memory of the review until
    /// the response is sent. If a longer response needs more memory, this memory counts towards the
    /// limit of the requester. If no memory is free, the response is a short message to retry.
    pub(super) fn respond(&self, received: ReceivedReview, review: &Value) -> Response {
        let ReceivedReview {
            request, mut share, ..
        } = received;
        let mut body = review.to_string();
        let pool = &self.budget.parsed_objects;
        let mut shares = Vec::new();
        let longer = (body.len() as u64).saturating_sub(share.weight());
        if longer > 0 {
            let (requester, client) = (&request.requester.user, request.client);
            let caps = Budget::of_running_review(pool, requester, client, share.weight());
            shares.extend(pool.try_take(longer, caps));
            if shares.is_empty() {
                let verdict = Verdict::Unknown(rejections::no_memory_for_response().into());
                let refusal = text::refusal(&verdict);
                let review = refusal.map(|refusal| review::denied(&request.uid, &refusal, &[]));
                body = review.unwrap_or_default().to_string();
            }
        }
        drop(request);
        share.reduce(body.len() as u64);
        shares.push(share);
        let kind = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (kind, body).into_response();
        let shares = ResponseShares::new(shares);
        response.extensions_mut().insert(shares);
        response
    }

    /// Returns the maximum time of the wait for memory: half of the deadline. The other half is for
    /// the review itself.
    pub(super) fn memory_timeout(&self) -> Duration {
        self.deadline / 2
    }

    async fn receive(&self, request: HttpRequest) -> Result<ReceivedReview, Response> {
        let received = Instant::now();
        let announced = content_length(&request);
        let length = announced.unwrap_or(BODY_LIMIT);
        if length > BODY_LIMIT {
            let message = format!("the review is larger than the limit of {BODY_LIMIT} bytes");
            return Err(self.invalid(StatusCode::PAYLOAD_TOO_LARGE, message, received));
        }
        let (arrivals, pool) = if length <= SMALL_BODY {
            (&self.budget.small_arrivals, &self.budget.small_bodies)
        } else {
            (&self.budget.large_arrivals, &self.budget.bodies)
        };
        let client = request.extensions().get::<Arc<Client>>();
        let address = client.map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.address());
        let too_many = || {
            let message = "too many reviews arrive at once".to_owned();
            self.invalid(StatusCode::TOO_MANY_REQUESTS, message, received)
        };
        // If too many reviews already wait, this review is rejected at once.
        let arrival = arrivals.try_take(1, Budget::by_address(arrivals, address));
        let arrival = arrival.ok_or_else(too_many)?;
        let share = pool.take(length as u64, Budget::by_address(pool, address));
        let Some(Ok(body_share)) = budget::wait_for_share(self.memory_timeout(), share).await
        else {
            return Err(too_many());
        };
        let allowed = BODY_TIMEOUT + Duration::from_secs(length as u64 / MIN_BODY_RATE);
        let buffer = Vec::with_capacity(announced.unwrap_or_default());
        let receiving = bytes(request.into_body(), buffer, length);
        let body = match tokio::time::timeout(allowed, receiving).await {
            Ok(Ok(body)) => body,
            Ok(Err(message)) => {
                return Err(self.invalid(StatusCode::PAYLOAD_TOO_LARGE, message, received));
            }
            Err(_) => {
                let message = format!("the review did not arrive within {allowed:?}");
                return Err(self.invalid(StatusCode::REQUEST_TIMEOUT, message, received));
            }
        };
        drop(arrival);
        let started = Instant::now();
        let body = HeldBody {
            bytes: body,
            _share: body_share,
        };
        let weighed = self.parsed(address_key(address), (body, ()), review::weigh);
        let weighed = weighed.await;
        let (envelope, (body, ())) = weighed.map_err(|why| self.malformed(&why, started))?;
        let length = body.bytes.len();
        let share = self.tree_share(&envelope, length, address, started).await?;
        let requester = envelope.request.as_ref();
        let requester = requester.map_or("", |request| request.user_info.username.as_str());
        let parsed = self.parsed(requester_key(requester), (body, share), review::read);
        let parsed = parsed.await;
        let parsed = parsed.map_err(|why| self.malformed(&why, started))?;
        let ((mut request, removed), (body, mut share)) = parsed;
        drop(body);
        share.reduce(share.weight().saturating_sub(removed.0));
        request.client = Some(address);
        request.reserved = share.weight();
        Ok(ReceivedReview {
            request,
            started,
            share,
        })
    }

    /// Runs `read` over the body, on another thread if the body is large. On that thread, work for
    /// different keys alternates ([`Budget::blocking`]). `memory` is the reserved memory for the
    /// result. If the review is cancelled, body and `memory` are dropped when `read` ends.
    async fn parsed<T: Send + 'static, M: Send + 'static>(
        &self,
        key: String,
        (body, memory): (HeldBody, M),
        read: fn(&[u8]) -> Result<T, String>,
    ) -> Result<(T, (HeldBody, M)), String> {
        let length = body.bytes.len();
        let work = move |_: &Cancellation| read(&body.bytes).map(|result| (result, (body, memory)));
        // Moving a small body to another thread needs more time than parsing it.
        if length <= SMALL_BODY {
            return work(&Cancellation::default());
        }
        let done = self.budget.blocking(WorkerThread::Objects, key, work).await;
        done.unwrap_or_else(|| {
            Err("the review cannot be parsed: the worker thread panicked".to_owned())
        })
    }

    /// Reserves memory for the parsed request, within the limits of the requester and of the client
    /// address. The reservation includes the size of the body, which is enough for the short texts
    /// of the request.
    async fn tree_share(
        &self,
        envelope: &Envelope,
        body: usize,
        client: IpAddr,
        started: Instant,
    ) -> Result<Share, Response> {
        const NONE: &str = "";
        let request = envelope.request.as_ref();
        let requester = request.map_or(NONE, |request| request.user_info.username.as_str());
        let weight = request
            .map(|request| request.memory().0)
            .unwrap_or_default()
            .saturating_add(body as u64);
        let largest = self.budget.largest_review();
        if weight > largest {
            let finding = rejections::objects_too_large(weight, largest);
            return Err(self.rejection_response(request, finding, started));
        }
        let pool = &self.budget.parsed_objects;
        let _waiting = if pool.is_capped(weight, &Budget::half(pool, requester)) {
            let waiting = self.wait_for_review_of_requester(requester, client, body);
            let Some(waiting) = waiting else {
                let finding = rejections::memory_of_requester_in_use();
                return Err(self.rejection_response(request, finding, started));
            };
            Some(waiting)
        } else {
            None
        };
        let share = pool.take(weight, Budget::of_review(pool, requester, Some(client)));
        // A request that needs more memory than the capacity was already rejected.
        if let Some(Ok(share)) = budget::wait_for_share(self.memory_timeout(), share).await {
            return Ok(share);
        }
        let finding = rejections::no_memory(self.memory_timeout());
        Err(self.rejection_response(request, finding, started))
    }

    /// Reserves memory for a small body that waits for other reviews of its requester: up to a
    /// quarter of the memory for waiting bodies for one requester, and the limit of the client
    /// address. Returns `None` if this memory is in use or the body is large. The review must then
    /// not wait, because its body uses memory that bodies of other requesters need.
    fn wait_for_review_of_requester(
        &self,
        requester: &str,
        client: IpAddr,
        body: usize,
    ) -> Option<Share> {
        if body > SMALL_BODY {
            return None;
        }
        let pool = &self.budget.waiting_bodies;
        let mut caps = Budget::part(pool, requester, 4);
        caps.extend(Budget::by_address(pool, client));
        pool.try_take(body as u64, caps)
    }

    /// Returns the response to a review that was not parsed.
    fn rejection_response(
        &self,
        request: Option<&RequestEnvelope>,
        finding: Finding,
        started: Instant,
    ) -> Response {
        let code = finding.code;
        let verdict = if code == codes::review::BUSY {
            Verdict::Unknown(finding.into())
        } else {
            Verdict::Refuse(finding.into())
        };
        let outcome = match &verdict {
            Verdict::Unknown(_) => ReviewOutcome::CannotTell,
            _ => ReviewOutcome::Refused,
        };
        self.count(outcome, code, started);
        let uid = request.map_or("", |request| request.uid.as_str());
        match text::refusal(&verdict) {
            Some(refusal) => {
                tracing::info!(code = code.id, "{}", refusal.message);
                Json(review::denied(uid, &refusal, &[])).into_response()
            }
            None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }

    fn count(&self, outcome: ReviewOutcome, code: Code, started: Instant) {
        let took = started.elapsed();
        self.metrics
            .review("other", "other", outcome, Some(code), took);
    }

    /// Returns the response to a request that was not received completely.
    fn invalid(&self, status: StatusCode, message: String, started: Instant) -> Response {
        self.count(ReviewOutcome::Invalid, codes::review::MALFORMED, started);
        tracing::warn!(code = codes::review::MALFORMED.id, "{message}");
        let mut response = (status, message + "\n").into_response();
        if status == StatusCode::TOO_MANY_REQUESTS {
            // The HTTP client of the API server retries only if the response has the header
            // Retry-After.
            let seconds = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }

    /// Returns the response to a body that is not a valid review.
    fn malformed(&self, why: &str, started: Instant) -> Response {
        // The error of the parser can quote text of the body, which can be long.
        let why = &bounded(why, MESSAGE_BYTES);
        let verdict = Verdict::Refuse(rejections::malformed(why).into());
        self.count(ReviewOutcome::Invalid, codes::review::MALFORMED, started);
        tracing::warn!(code = codes::review::MALFORMED.id, "{why}");
        let refusal = text::refusal(&verdict);
        let message = refusal.map(|refusal| refusal.message).unwrap_or_default();
        Json(AdmissionResponse::invalid(message).into_review()).into_response()
    }
}

fn content_length(request: &HttpRequest) -> Option<usize> {
    let length = request.headers().get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Reads the whole body into `all`. Fails if the body is longer than `length` bytes.
async fn bytes(body: Body, mut all: Vec<u8>, length: usize) -> Result<Vec<u8>, String> {
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| format!("cannot receive the review: {error}"))?;
        if all.len() + piece.len() > length {
            return Err(format!(
                "the review is larger than the limit of {length} bytes"
            ));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all)
}
