//! Each wait of a review ends at the deadline of the review, from the head of its request.

use std::io;

use axum::http::header;
use futures::stream;
use tokio::time::{Instant, sleep};

use super::waiting::client;
use super::*;
use crate::budget::{Pool, SMALL_BODY, Share, WorkerThread};
use crate::server::admission_listener::BODY_LIMIT;
use crate::server::deadline::ReviewDeadline;

/// Reserves all units of a pool.
fn all(pool: &Pool) -> Share {
    pool.try_take(pool.capacity(), Vec::new()).unwrap()
}

/// Returns the request for the review of a Bundle of `ana` at `path`.
fn request(path: &str, body: impl Into<Body>) -> HttpRequest<Body> {
    let body = body.into();
    let length = http_body::Body::size_hint(&body).exact().unwrap();
    let request = HttpRequest::post(path).header(header::CONTENT_LENGTH, length);
    request.body(body).unwrap()
}

impl Server {
    /// Sends a request. Returns the response, and the time until the response in seconds.
    async fn timed(&self, request: HttpRequest<Body>) -> (Response, u64) {
        let began = Instant::now();
        let response = self.router.clone().oneshot(request).await.unwrap();
        (response, began.elapsed().as_secs())
    }
}

async fn answer(response: Response) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    answer["response"].clone()
}

fn message(answer: &Value) -> &str {
    answer["status"]["message"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn review_waits_for_a_slot_and_for_the_memory_of_its_body() {
    let server = server(Fake::default());
    let budget = &server.budget;
    for (pool, length, seconds) in [
        (&budget.small_arrivals, 100, 3),
        (&budget.large_arrivals, 100 << 10, 3),
        (&budget.small_bodies, 100, 4),
        (&budget.bodies, 100 << 10, 4),
    ] {
        let _held = all(pool);
        let request = request("/validate", vec![b' '; length]);
        let (response, waited) = server.timed(request).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(waited, seconds);
        // With this header, the API server would send the review again, and exceed its timeout.
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
    }
}

#[tokio::test(start_paused = true)]
async fn body_that_does_not_arrive_ends_after_its_time_limit_or_at_the_deadline() {
    let server = server(Fake::default());
    let announced = |length: usize, body: Body| {
        let request = HttpRequest::post("/validate").header(header::CONTENT_LENGTH, length);
        request.body(body).unwrap()
    };
    for length in [100, BODY_LIMIT] {
        let stalled = Body::from_stream(stream::pending::<io::Result<Vec<u8>>>());
        let (response, waited) = server.timed(announced(length, stalled)).await;
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(waited, 2, "{length}");
    }
    // The body arrives with the minimum rate, but too late.
    let slow = stream::unfold(Duration::from_millis(1_900), |wait| async move {
        sleep(wait).await;
        let piece = vec![b' '; 105 << 10];
        Some((Ok::<_, io::Error>(piece), Duration::from_millis(100)))
    });
    let slow = announced(BODY_LIMIT, Body::from_stream(slow));
    let (response, waited) = server.timed(slow).await;
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(waited, 8);
    let budget = &server.budget;
    assert_eq!((budget.large_arrivals.used(), budget.bodies.used()), (0, 0));
}

#[tokio::test]
async fn review_does_not_wait_for_the_parsing_thread_beyond_its_deadline() {
    let server = server(Fake::default());
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let budget = server.budget.clone();
    let busy = tokio::spawn(async move {
        let (thread, key) = (WorkerThread::Objects, "other".to_owned());
        budget.blocking(thread, key, move |_| ended.recv()).await
    });
    tokio::task::yield_now().await;
    let mut request = request("/validate", vec![b' '; 100 << 10]);
    let deadline = ReviewDeadline::after(Duration::from_millis(200));
    request.extensions_mut().insert(deadline);
    let (response, _) = server.timed(request).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.budget.bodies.used(), 0);
    end.send(()).unwrap();
    busy.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_waits_of_a_review_together_end_at_its_deadline() {
    let server = server(Fake::default());
    server.fake.stalled.store(true, Ordering::SeqCst);
    let review = review("ana", None, &bundle()).to_string();
    let budget = &server.budget;
    for path in ["/validate", "/mutate"] {
        for (pool, milliseconds) in [
            (&budget.small_arrivals, 2_900),
            (&budget.small_bodies, 3_900),
            (&budget.parsed_objects, 7_500),
        ] {
            let held = all(pool);
            tokio::spawn(async move {
                sleep(Duration::from_millis(milliseconds)).await;
                drop(held);
            });
        }
        let (response, waited) = server.timed(request(path, review.clone())).await;
        assert_eq!((response.status(), waited), (StatusCode::OK, 8));
        let answer = answer(response).await;
        if path == "/validate" {
            let expected = "BUNDLE-REVIEW-021: the review did not finish within 8s";
            assert!(message(&answer).starts_with(expected), "{answer}");
        }
    }
    // The wait for memory also ends at the deadline.
    for (pool, milliseconds) in [
        (&budget.small_arrivals, Some(2_900)),
        (&budget.small_bodies, Some(3_900)),
        (&budget.parsed_objects, None),
    ] {
        let held = all(pool);
        tokio::spawn(async move {
            match milliseconds {
                Some(milliseconds) => sleep(Duration::from_millis(milliseconds)).await,
                None => std::future::pending().await,
            }
            drop(held);
        });
    }
    let (response, waited) = server.timed(request("/validate", review)).await;
    assert_eq!((response.status(), waited), (StatusCode::OK, 7));
    let answer = answer(response).await;
    assert!(message(&answer).contains("BUNDLE-REVIEW-043"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn review_ends_before_a_short_timeout_of_the_api_server() {
    let server = server(Fake::default());
    server.fake.stalled.store(true, Ordering::SeqCst);
    let review = review("ana", None, &bundle()).to_string();
    let limit = Duration::from_secs(8);
    for (query, seconds) in [("timeout=10s", 8), ("timeout=5s", 3), ("timeout=2s", 1)] {
        let mut request = request("/validate", review.clone());
        let deadline = ReviewDeadline::of_call(Instant::now(), Some(query), limit);
        request.extensions_mut().insert(deadline);
        let (response, waited) = server.timed(request).await;
        assert_eq!(waited, seconds);
        let answer = answer(response).await;
        let expected = format!("BUNDLE-REVIEW-021: the review did not finish within {seconds}s");
        assert!(message(&answer).starts_with(&expected), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_verdict_of_a_client_is_not_used_for_a_review_from_another_address() {
    let server = server(Fake::default());
    let review = review("ana", None, &bundle()).to_string();
    let ask = async |path: &str, host: u8, limit: Duration| {
        let mut request = request(path, review.clone());
        let extensions = request.extensions_mut();
        extensions.insert(client([10, 0, 0, host]));
        extensions.insert(ReviewDeadline::after(limit));
        answer(server.timed(request).await.0).await
    };
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(8));
    for (host, expected) in [(2, 403), (1, 503)] {
        // The client sends the name of another user, and a short timeout.
        server.fake.stalled.store(true, Ordering::SeqCst);
        ask("/mutate", 1, short).await;
        server.fake.stalled.store(false, Ordering::SeqCst);
        // The verdict of a new review is that the object has no stamp.
        let judged = ask("/validate", host, long).await;
        assert_eq!(judged["status"]["code"], expected, "{judged}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_body_of_two_addresses_delay_no_review_of_another_address() {
    let server = Arc::new(server(Fake::default()));
    let mut stalled = Vec::new();
    for number in 0..2_000 {
        let body = Body::from_stream(stream::pending::<io::Result<Vec<u8>>>());
        let lengths = [SMALL_BODY, BODY_LIMIT];
        let network = u8::from(number % 2 == 0);
        let request = HttpRequest::post("/validate")
            .header(header::CONTENT_LENGTH, lengths[number / 2 % 2])
            .extension(client([10, 0, network, 1]))
            .body(body)
            .unwrap();
        let server = Arc::clone(&server);
        stalled.push(tokio::spawn(async move { server.timed(request).await.0 }));
    }
    sleep(Duration::from_millis(100)).await;
    let review = review("ben", None, &bundle()).to_string();
    for _ in 0..20 {
        let mut request = request("/validate", review.clone());
        request.extensions_mut().insert(client([10, 0, 2, 1]));
        let (response, waited) = server.timed(request).await;
        assert_eq!((response.status(), waited), (StatusCode::OK, 0));
    }
    let ended = futures::future::join_all(stalled).await;
    let expected = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
    for response in ended {
        let status = response.unwrap().status();
        assert!(expected.contains(&status), "{status}");
    }
    let budget = &server.budget;
    let used = (budget.small_arrivals.used(), budget.small_bodies.used());
    assert_eq!(used, (0, 0));
}
