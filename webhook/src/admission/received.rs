//! Receives a review: reserves memory, reads the body, computes the memory of the parsed review,
//! and parses the review. The module `review` defines the content of a review.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, Request as HttpRequest};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::{Code, Finding, codes};
use bundle_core::review::{Verdict, text};
use bundle_core::text::bounded;
use kube::core::admission::AdmissionResponse;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::body::{ArrivingBody, BodyError};
use super::review::{self, Envelope, Request, RequestEnvelope};
use super::{Admission, Lookups, rejections};
use crate::budget::{Budget, SMALL_BODY, Share, WorkerThread, address_key, requester_key};
use crate::server::admission_listener::BODY_LIMIT;
use crate::server::connections::Client;
use crate::server::deadline::ReviewDeadline;
use crate::server::responses::ResponseShares;
use crate::telemetry::metrics::ReviewOutcome;

/// Number of equal parts of the pools for waiting bodies. Each requester can use one part.
const WAITING_PARTS: u64 = 4;

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
    share: Share,
}

/// The reason why a review was not parsed.
enum ParseError {
    Malformed(String),
    /// The review was not parsed before the deadline, or parsing needs too much CPU time.
    Late,
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
    /// the response is sent. If the response needs more memory than the review has reserved, the
    /// additional memory counts towards the limit of the requester. If no memory is free, the
    /// response is a short message to retry.
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

    /// Receives and parses a review before its deadline. The first half of the time limit is for
    /// the slot and the memory of the body.
    async fn receive(&self, request: HttpRequest) -> Result<ReceivedReview, Response> {
        let received = Instant::now();
        let deadline = ReviewDeadline::of_request(&request, self.deadline);
        let announced = content_length(&request);
        let length = announced.unwrap_or(BODY_LIMIT);
        if length > BODY_LIMIT {
            let message = format!("the review is larger than the limit of {BODY_LIMIT} bytes");
            return Err(self.invalid(StatusCode::PAYLOAD_TOO_LARGE, message, received));
        }
        let client = request.extensions().get::<Arc<Client>>();
        let address = client.map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.address());
        let too_many = || {
            let message = "too many reviews arrive at once".to_owned();
            self.invalid(StatusCode::TOO_MANY_REQUESTS, message, received)
        };
        let mut body = ArrivingBody::new(request.into_body(), length);
        let budget = &self.budget;
        let (arrival, pool, caps) = if length <= SMALL_BODY {
            let slots = &budget.small_arrivals;
            let slot = self.arrivals.slot(slots, address, deadline).await;
            let pool = &budget.small_bodies;
            let caps = Budget::by_address(pool, address);
            (slot.ok_or_else(too_many)?, pool, caps)
        } else {
            let requester = body.requester(deadline.half());
            let slots = &budget.large_arrivals;
            let slot = self
                .arrivals
                .large_slot(slots, address, deadline, requester);
            let (slot, requester) = slot.await.ok_or_else(too_many)?;
            let pool = &budget.bodies;
            let caps = Budget::of_large_body(pool, requester.as_deref(), address);
            (slot, pool, caps)
        };
        let share = pool.take(length as u64, caps);
        let Ok(Ok(body_share)) = timeout_at(deadline.half(), share).await else {
            return Err(too_many());
        };
        let body = match deadline.run(body.receive(announced)).await {
            Some(Ok(body)) => body,
            Some(Err(BodyError::Invalid(message))) => {
                return Err(self.invalid(StatusCode::PAYLOAD_TOO_LARGE, message, received));
            }
            Some(Err(BodyError::TooSlow)) | None => {
                let message = "the review arrives too slowly".to_owned();
                return Err(self.invalid(StatusCode::REQUEST_TIMEOUT, message, received));
            }
        };
        drop(arrival);
        let started = Instant::now();
        let body = HeldBody {
            bytes: body,
            share: body_share,
        };
        let key = address_key(address);
        let weigh = |body: &[u8], _: &Cancellation| review::weigh(body);
        let weighed = self.parsed(key, (body, ()), weigh, deadline);
        let (envelope, (mut body, ())) = weighed.await.map_err(|error| match error {
            ParseError::Malformed(why) => self.malformed(&why, started),
            // The uid of the review is unknown, so the response cannot be a review.
            ParseError::Late => too_many(),
        })?;
        let share = self.tree_share(&envelope, &mut body, address, deadline);
        let share = share.await;
        let envelope = envelope.request.as_ref();
        let rejection = |finding| self.rejection_response(envelope, finding, started);
        let share = share.map_err(rejection)?;
        let requester = envelope.map_or("", |request| request.user_info.username.as_str());
        let key = requester_key(requester);
        let parsed = self.parsed(key, (body, share), review::read, deadline);
        let parsed = parsed.await.map_err(|error| match error {
            ParseError::Malformed(why) => self.malformed(&why, started),
            ParseError::Late => rejection(rejections::deadline_exceeded(deadline.limit())),
        });
        let ((mut request, removed), (body, mut share)) = parsed?;
        drop(body);
        share.reduce(share.weight().saturating_sub(removed.0));
        request.client = Some(address);
        request.reserved = share.weight();
        request.deadline = deadline;
        Ok(ReceivedReview {
            request,
            started,
            share,
        })
    }

    /// Parses the body with `read`, on another thread if the body is large. On that thread, work
    /// for different keys alternates ([`Budget::blocking`]). `memory` is the memory that is
    /// reserved for the result. If the review is cancelled or its deadline ends, the body and
    /// `memory` are dropped when `read` ends. `read` ends early if its [`Cancellation`] is set.
    async fn parsed<T: Send + 'static, M: Send + 'static>(
        &self,
        key: String,
        (body, memory): (HeldBody, M),
        read: fn(&[u8], &Cancellation) -> Result<T, String>,
        deadline: ReviewDeadline,
    ) -> Result<(T, (HeldBody, M)), ParseError> {
        let length = body.bytes.len();
        let work = move |cancellation: &Cancellation| {
            if cancellation.is_cancelled_now() {
                return Err(ParseError::Late);
            }
            match read(&body.bytes, cancellation) {
                Ok(result) => Ok((result, (body, memory))),
                Err(_) if cancellation.is_cancelled() => Err(ParseError::Late),
                Err(why) => Err(ParseError::Malformed(why)),
            }
        };
        // Moving a small body to another thread needs more time than parsing it.
        if length <= SMALL_BODY {
            return work(&Cancellation::default());
        }
        let done = self.budget.blocking(WorkerThread::Objects, key, work);
        let panicked = || {
            let why = "the review cannot be parsed: the worker thread panicked";
            Err(ParseError::Malformed(why.to_owned()))
        };
        match deadline.run(done).await {
            Some(done) => done.unwrap_or_else(panicked),
            None => Err(ParseError::Late),
        }
    }

    /// Reserves memory for the parsed request, within the limits of the requester and of the client
    /// address. The reservation includes the size of the body, which is enough for the short texts
    /// of the request. The error is the finding that rejects the review.
    async fn tree_share(
        &self,
        envelope: &Envelope,
        body: &mut HeldBody,
        client: IpAddr,
        deadline: ReviewDeadline,
    ) -> Result<Share, Finding> {
        const NONE: &str = "";
        let request = envelope.request.as_ref();
        let requester = request.map_or(NONE, |request| request.user_info.username.as_str());
        let weight = request
            .map(|request| request.memory().0)
            .unwrap_or_default()
            .saturating_add(body.bytes.len() as u64);
        let largest = self.budget.largest_review();
        if weight > largest {
            return Err(rejections::objects_too_large(weight, largest));
        }
        let pool = &self.budget.parsed_objects;
        let caps = Budget::of_review(pool, requester, Some(client));
        if let Some(share) = pool.try_take(weight, caps.clone()) {
            return Ok(share);
        }
        let of_requester = Budget::of_requester(pool, requester, Some(client));
        let is_limited = pool.is_capped(weight, &of_requester);
        let is_small = body.bytes.len() <= SMALL_BODY;
        let rejection = if is_limited {
            rejections::memory_of_requester_in_use
        } else {
            rejections::too_many_waiting_reviews
        };
        if is_limited && !is_small {
            return Err(rejection());
        }
        let waiting = self.waiting_body(requester, client, body.bytes.len());
        let waiting = waiting.ok_or_else(rejection)?;
        let _waiting = if is_small {
            // From now on, the body counts only for the memory of waiting bodies.
            body.share = waiting;
            None
        } else {
            // From now on, the body counts only for the limits of waiting bodies and of the
            // address. Otherwise further bodies of the requester would wait until this wait ends.
            body.share.release_first_key();
            Some(waiting)
        };
        let share = pool.take(weight, caps);
        let (start, end) = (Instant::now(), deadline.end_of_wait(2));
        // A request that needs more memory than the capacity was already rejected.
        match timeout_at(end, share).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(rejections::no_memory(end.saturating_duration_since(start))),
        }
    }

    /// Reserves a share for a body of `length` bytes whose review must wait for memory. Each
    /// requester can use a quarter of the pool at each client address, also for a single body. The
    /// limit of the address also applies. Returns `None` if the share is not free now. The caller
    /// must then reject the review, because a waiting body would use memory that bodies of other
    /// requesters need.
    fn waiting_body(&self, requester: &str, client: IpAddr, length: usize) -> Option<Share> {
        let pool = if length <= SMALL_BODY {
            &self.budget.waiting_bodies
        } else {
            &self.budget.waiting_large_bodies
        };
        let length = length as u64;
        if length > pool.capacity() / WAITING_PARTS {
            return None;
        }
        let caps = Budget::part_at_origin(pool, requester, Some(client), WAITING_PARTS);
        pool.try_take(length, caps)
    }

    /// Returns the response to a review that was not parsed.
    fn rejection_response(
        &self,
        request: Option<&RequestEnvelope>,
        finding: Finding,
        started: Instant,
    ) -> Response {
        let code = finding.code;
        let verdict = if [codes::review::BUSY, codes::review::DEADLINE].contains(&code) {
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
        // The response has no header Retry-After. Otherwise the HTTP client of the API server would
        // send the review again. The second review would have a new deadline, after the timeout of
        // the API server.
        (status, message + "\n").into_response()
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
