//! The deadline of a review: one time limit from the head of its request to its response.
//!
//! The response must arrive before the API server stops waiting. Otherwise the API server returns
//! an error with the URL of the webhook to the user, and this URL contains the secret path.

use std::time::Duration;

use axum::extract::Request;
use tokio::time::{Instant, timeout_at};

/// Time between the deadline and the timeout of the API server. The response needs a part of this
/// time. The API server also rounds the timeout in the URL up to whole seconds.
const RESPONSE_TIME: Duration = Duration::from_secs(2);

/// The deadline of one review, stored in the `http::Extensions` of its request. Each wait of the
/// review ends at this time at the latest. [`Self::default`] is a deadline that has already passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewDeadline {
    start: Instant,
    limit: Duration,
}

impl Default for ReviewDeadline {
    fn default() -> Self {
        Self::after(Duration::ZERO)
    }
}

impl ReviewDeadline {
    /// Creates a deadline whose time begins now.
    pub fn after(limit: Duration) -> Self {
        let start = Instant::now();
        Self { start, limit }
    }

    /// Creates the deadline of a request whose time began at `start`. The time limit is `limit`, or
    /// less if the timeout of the API server is short. API servers send their timeout in the query
    /// of the URL. A user can set a short timeout for a write.
    pub fn of_call(start: Instant, query: Option<&str>, limit: Duration) -> Self {
        let within = query.and_then(call_timeout).map(limit_within);
        let limit = within.map_or(limit, |within| limit.min(within));
        Self { start, limit }
    }

    /// Returns the deadline of this request. If the request has no deadline, the time begins now.
    pub fn of_request(request: &Request, limit: Duration) -> Self {
        let known = request.extensions().get::<Self>().copied();
        known.unwrap_or_else(|| Self::after(limit))
    }

    /// Returns the time limit from the head of the request to the response.
    pub fn limit(self) -> Duration {
        self.limit
    }

    /// Returns the time at which the review must have a response.
    pub fn end(self) -> Instant {
        self.start + self.limit
    }

    /// Returns the time at which half of the time limit has passed.
    pub fn half(self) -> Instant {
        self.start + self.limit / 2
    }

    /// Returns the end of a wait that begins now. The wait takes at most the time limit divided by
    /// `parts`, and ends at the deadline at the latest.
    pub fn end_of_wait(self, parts: u32) -> Instant {
        let end = Instant::now() + self.limit / parts;
        end.min(self.end())
    }

    /// Runs `work` until the deadline. Returns `None` if `work` has not ended by then.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.end(), work).await.ok()
    }
}

/// Returns the timeout of an API server in the query of a URL, such as `timeout=10s`. Returns
/// `None` if the query contains no number of seconds. Timeouts of one minute or more have a
/// different form, such as `1m0s`.
fn call_timeout(query: &str) -> Option<Duration> {
    let mut parameters = query.split('&');
    let value = parameters.find_map(|parameter| parameter.strip_prefix("timeout="))?;
    let seconds: u32 = value.strip_suffix('s')?.parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// Returns the time limit of a review for an API server with this timeout.
fn limit_within(timeout: Duration) -> Duration {
    timeout.saturating_sub(RESPONSE_TIME).max(timeout / 2)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use clap::Parser as _;

    use super::*;
    use crate::config::args::Args;

    const REGISTRATIONS: [&str; 2] = [
        include_str!("../../deploy/admission/validating.yaml"),
        include_str!("../../deploy/admission/mutating.yaml"),
    ];

    #[test]
    fn default_deadline_is_before_the_timeout_of_each_shipped_registration() {
        let args = Args::try_parse_from(["bundle-webhook"]).unwrap();
        let limit = Duration::try_from(args.review_deadline).unwrap();
        for text in REGISTRATIONS {
            let documents = bundle_core::yaml::documents(text.as_bytes(), "shipped").unwrap();
            let webhooks = documents[0].value["webhooks"].as_array().unwrap();
            assert!(!webhooks.is_empty());
            for webhook in webhooks {
                let timeout = webhook["timeoutSeconds"].as_u64().unwrap();
                assert_eq!(limit + RESPONSE_TIME, Duration::from_secs(timeout));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_is_before_each_timeout_that_an_api_server_sends() {
        let start = Instant::now();
        let longest = Duration::from_secs(8);
        let limit = |query: Option<&str>| {
            let deadline = ReviewDeadline::of_call(start, query, longest);
            deadline.limit()
        };
        for (query, milliseconds) in [
            (None, 8_000),
            (Some(""), 8_000),
            (Some("timeout=10s"), 8_000),
            (Some("timeout=30s"), 8_000),
            (Some("timeout=1m0s"), 8_000),
            (Some("timeout=4294967295s"), 8_000),
            (Some("timeout=4294967296s"), 8_000),
            (Some("timeout=-1s"), 8_000),
            (Some("a=b&timeout=5s"), 3_000),
            (Some("timeout=2s"), 1_000),
            (Some("timeout=1s"), 500),
            (Some("timeout=0s"), 0),
        ] {
            let expected = Duration::from_millis(milliseconds);
            assert_eq!(limit(query), expected, "{query:?}");
        }
        // The API server rounds each timeout up: more than one second becomes two seconds.
        for seconds in 2..=30 {
            let query = format!("timeout={seconds}s");
            let shortest = Duration::from_secs(seconds - 1);
            assert!(limit(Some(&query)) <= shortest, "{seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_end_at_the_deadline_at_the_latest() {
        let deadline = ReviewDeadline::after(Duration::from_secs(8));
        let start = Instant::now();
        let seconds = |end: Instant| (end - start).as_secs();
        assert_eq!((seconds(deadline.half()), seconds(deadline.end())), (4, 8));
        assert_eq!(seconds(deadline.end_of_wait(4)), 2);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(seconds(deadline.end_of_wait(4)), 8);
        assert_eq!(deadline.run(std::future::pending::<()>()).await, None);
        assert_eq!(start.elapsed().as_secs(), 8);
        assert!(ReviewDeadline::default().end() <= Instant::now());
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(deadline);
        let second = Duration::from_secs(1);
        let known = ReviewDeadline::of_request(&request, second);
        let other = ReviewDeadline::of_request(&Request::new(Body::empty()), second);
        assert_eq!((known, other), (deadline, ReviewDeadline::after(second)));
    }
}
