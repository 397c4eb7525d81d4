//! Memory that a client can use with many HTTP/2 requests on the admission port. Unknown clients
//! send requests without the path of the webhook. Other clients use the correct path.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use e2e::wait;
use tokio::task::JoinSet;

use super::client::{self, ELSEWHERE, KNOWN, PARALLEL, Sent, Target, unknown_url};
use super::*;

/// Number of clients that connect repeatedly.
const CLIENTS: usize = 500;
/// Number of requests on each connection, as many as API servers send.
const REQUESTS: usize = 100;
/// Total number of connections that the unknown clients open. The pod closes many of these
/// connections early.
const OPENED: usize = 5_000;
/// Announced length of each body in bytes, and the number of bytes that are sent.
const LENGTH: usize = 64 << 10;
const PART: usize = 10 << 10;
/// Number of connections of each client that sends requests without bodies. All requests of these
/// connections together reach the maximum number of requests that the pod receives at the same
/// time.
const BODILESS: usize = 8;
/// Memory that unknown clients may add, in KiB.
const UNKNOWN_GROWTH: u64 = 32 << 10;

/// Sends the heads of many requests on a new connection, and a part of each body, until the
/// connection ends.
async fn send_many(target: &Target, url: &http::Uri) -> anyhow::Result<Vec<Sent>> {
    let (sender, _) = target.connect().await?;
    let part = Bytes::from(vec![b' '; PART]);
    let mut sent = Vec::new();
    while sent.len() < REQUESTS {
        let Ok(one) = client::send(&sender, url, LENGTH, part.clone()).await else {
            break;
        };
        sent.push(one);
    }
    Ok(sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_requests_of_clients_without_the_path_use_little_memory_and_reviews_continue() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let (target, url) = Target::of(&cluster).await;
    // A request to the first URL waits until the pod has read the tokens again. A request to the
    // second URL is rejected immediately.
    let unknown = unknown_url(&url);
    let other = format!("https://{}/x", url.authority().unwrap());
    let urls = [unknown, other.parse().unwrap()];
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let opened = Arc::new(AtomicUsize::new(0));
    let mut attack = JoinSet::new();
    for url in urls.iter().cycle().take(CLIENTS) {
        let (target, url, opened) = (target.clone(), url.clone(), opened.clone());
        attack.spawn(async move {
            loop {
                opened.fetch_add(1, Ordering::Relaxed);
                if let Ok(sent) = send_many(&target, &url).await {
                    join_all(sent.into_iter().map(|(response, _body)| response)).await;
                }
            }
        });
    }
    wait::until_true(LONG, "unknown clients have connected often", || async {
        assert_reviewed(&client, "streams").await;
        Ok(opened.load(Ordering::Relaxed) >= OPENED)
    })
    .await
    .unwrap();
    attack.shutdown().await;
    let count = opened.load(Ordering::Relaxed);
    let attack = format!("{count} connections with {REQUESTS} requests to an unknown path");
    let peak = survived(&attack, &mut webhook, probe).await;
    assert!(peak < idle + UNKNOWN_GROWTH, "{idle} KiB, then {peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_of_a_client_that_knows_the_path_stay_within_the_limit() {
    let (cluster, mut webhook) = stage().await;
    let (target, url) = Target::of(&cluster).await;
    let probe = LivenessProbe::start(&webhook);
    let mut held = Vec::new();
    for _ in 0..KNOWN {
        held.push(send_many(&target, &url).await.unwrap());
    }
    let requests: usize = held.iter().map(Vec::len).sum();
    let answered = join_all(held.into_iter().flatten().map(|(response, _body)| response)).await;
    let answered = answered.iter().filter(|answer| answer.is_ok()).count();
    record(&format!(
        "{answered} of {requests} requests have a response"
    ));
    let attack = format!("{requests} requests of one client to a known path");
    survived(&attack, &mut webhook, probe).await;
}

/// Sends requests without bodies on connections of `target`, and repeats each request when it has a
/// response. Counts the requests in `sent`.
async fn send_without_bodies(target: Target, url: http::Uri, sent: Arc<AtomicUsize>) {
    loop {
        let Ok((sender, _)) = target.connect().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let requests = (0..PARALLEL).map(async |_| {
            while let Ok((response, _body)) =
                client::send(&sender, &url, LENGTH, Bytes::new()).await
            {
                sent.fetch_add(1, Ordering::Relaxed);
                if response.await.is_err() {
                    break;
                }
            }
        });
        join_all(requests).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_bodies_of_clients_with_two_addresses_delay_no_review_of_the_api_server() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let (target, url) = Target::of(&cluster).await;
    let probe = LivenessProbe::start(&webhook);
    let sent = Arc::new(AtomicUsize::new(0));
    let mut attack = JoinSet::new();
    for source in ELSEWHERE {
        for _ in 0..BODILESS {
            let target = target.with_source(source);
            attack.spawn(send_without_bodies(target, url.clone(), sent.clone()));
        }
    }
    let all = ELSEWHERE.len() * BODILESS * PARALLEL;
    wait::until_true(LONG, "each stream has sent a request", || {
        std::future::ready(Ok(sent.load(Ordering::Relaxed) >= all))
    })
    .await
    .unwrap();
    let mut longest = Duration::ZERO;
    for number in 0..10 {
        let asked = Instant::now();
        assert_reviewed(&client, &format!("streams-{number}")).await;
        longest = longest.max(asked.elapsed());
    }
    attack.shutdown().await;
    let sent = sent.load(Ordering::Relaxed);
    record(&format!(
        "{sent} requests without bodies; longest write with two reviews {longest:?}"
    ));
    let attack = format!("{all} parallel requests without bodies of two addresses");
    survived(&attack, &mut webhook, probe).await;
}

/// A single wrong token does not close the connection of a client that has used the correct path,
/// because the path may have been rotated in the meantime. Many wrong tokens close the connection.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_of_a_client_that_knew_the_path_use_little_memory_and_close_its_connections() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let (target, url) = Target::of(&cluster).await;
    let unknown = unknown_url(&url);
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let part = Bytes::from(vec![b' '; PART]);
    let answered = Arc::new(AtomicUsize::new(0));
    let mut attack = JoinSet::new();
    for _ in 0..KNOWN {
        let (sender, _) = target.connect().await.unwrap();
        let known = client::send(&sender, &url, 2, Bytes::from_static(b"{}")).await;
        assert_eq!(known.unwrap().0.await.unwrap().status(), 200);
        for _ in 0..PARALLEL {
            let (sender, unknown, part) = (sender.clone(), unknown.clone(), part.clone());
            let answered = answered.clone();
            attack.spawn(async move {
                while let Ok((response, _body)) =
                    client::send(&sender, &unknown, LENGTH, part.clone()).await
                    && let Ok(response) = response.await
                {
                    assert_eq!(response.status(), 404);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    let ended = tokio::spawn(attack.join_all());
    wait::until_true(LONG, "the connections of the client are closed", || async {
        assert_reviewed(&client, "wrong-tokens").await;
        Ok(ended.is_finished())
    })
    .await
    .unwrap();
    ended.await.unwrap();
    let answered = answered.load(Ordering::Relaxed);
    let attack = format!("{answered} requests with wrong tokens of {KNOWN} known connections");
    let peak = survived(&attack, &mut webhook, probe).await;
    assert!(peak < idle + UNKNOWN_GROWTH, "{idle} KiB, then {peak} KiB");
}
