//! Reviews that wait for memory, and the memory that reviews reserve until they end.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use bundle_core::review::{PartRequesters, Stamp, written_digest};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::stamps::generated_bundle;
use super::*;
use crate::server::connections::{Client, Connections, Limits};
use crate::stored_object;

/// Returns a Bundle with `text` bytes of text. If `is_heavy` is true, the Bundle needs more than
/// half of the memory of reviews.
fn large(text: usize, is_heavy: bool) -> Value {
    let mut object = bundle();
    object["spec"]["other"] = "x".repeat(text).into();
    if is_heavy {
        // The size limit of an object does not include the fields of other managers.
        let lists = json!({"lists": vec![json!([0]); 90_000]});
        object["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": lists}]);
    }
    object
}

fn is_busy(answer: &Value) -> bool {
    answer["status"]["code"] == 503
        && answer["status"]["message"]
            .as_str()
            .is_some_and(|message| message.contains("BUNDLE-REVIEW-043"))
}

#[tokio::test(start_paused = true)]
async fn large_review_does_not_wait_for_other_reviews_of_its_requester() {
    let server = Arc::new(server(Fake::default()));
    server.fake.stalled.store(true, Ordering::SeqCst);
    let ask = |user: &'static str, object: Value| {
        let server = Arc::clone(&server);
        async move { server.ask("/validate", &review(user, None, &object)).await }
    };
    let first = tokio::spawn(ask("ana", large(0, true)));
    while server.fake.registry_requests.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The second review is rejected immediately. If this review waited, its body would use memory
    // that the bodies of other requesters need.
    let asked = Instant::now();
    let second = ask("ana", large(100 << 10, false)).await;
    assert!(is_busy(&second), "{second}");
    assert!(asked.elapsed() < Duration::from_secs(1));
    // Small bodies wait in separate memory, which is also limited.
    let mut small: Vec<_> = (0..20)
        .map(|_| Box::pin(ask("ana", large(40 << 10, false))))
        .collect();
    let mut refused = 0;
    for one in &mut small {
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(10), one).await {
            assert!(is_busy(&answer), "{answer}");
            refused += 1;
        }
    }
    assert!((10..20).contains(&refused), "{refused}");
    // Reviews of other requesters are served while these reviews wait.
    server.fake.stalled.store(false, Ordering::SeqCst);
    let other = ask("bob", large(100 << 10, false)).await;
    assert!(!is_busy(&other), "{other}");
    assert!(!first.is_finished());
}

#[tokio::test(start_paused = true)]
async fn large_bodies_that_wait_for_memory_leave_memory_to_bodies_of_other_requesters() {
    let server = Arc::new(server(Fake::default()));
    let (trees, bodies) = (&server.budget.parsed_objects, &server.budget.bodies);
    let held = trees.try_take(trees.capacity(), Vec::new()).unwrap();
    let ask = |text: usize| {
        let server = Arc::clone(&server);
        async move {
            let began = Instant::now();
            let review = review("eve", None, &large(text, false));
            let answer = server.ask("/validate", &review).await;
            assert!(is_busy(&answer), "{answer}");
            began.elapsed() > Duration::from_secs(3)
        }
    };
    // A body above a quarter of the memory for bodies never waits for the memory of its objects.
    assert!(!ask(5 << 19).await);
    let asking = futures::future::join_all((0..6).map(|_| ask(1 << 20)));
    let (waited, used) = futures::join!(asking, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bodies.used()
    });
    assert_eq!(waited.into_iter().filter(|waited| *waited).count(), 2);
    assert!(used > 2 << 20 && used <= bodies.capacity() / 4, "{used}");
    drop(held);
    assert_eq!(server.budget.waiting_large_bodies.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn small_bodies_that_wait_for_memory_leave_memory_to_bodies_of_other_requesters() {
    let server = Arc::new(server(Fake::default()));
    let budget = &server.budget;
    let trees = &budget.parsed_objects;
    let held = trees.try_take(trees.capacity(), Vec::new()).unwrap();
    let ask = |user: &'static str| {
        let server = Arc::clone(&server);
        let review = review(user, None, &large(40 << 10, false));
        async move { server.ask("/validate", &review).await }
    };
    let mut asked: Vec<_> = (0..20)
        .map(|number| Box::pin(ask(["ana", "eve"][number % 2])))
        .collect();
    let mut refused = 0;
    for one in &mut asked {
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(1), one).await {
            assert!(is_busy(&answer), "{answer}");
            refused += 1;
        }
    }
    assert!((6..20).contains(&refused), "{refused}");
    let waiting = budget.waiting_bodies.used();
    assert!(waiting > 0 && waiting <= budget.waiting_bodies.capacity() / 2);
    assert_eq!(budget.small_bodies.used(), 0);
    drop((asked, held));
    assert_eq!(budget.waiting_bodies.used(), 0);
}

/// Returns the client of a connection from this address.
pub(super) fn client(address: [u8; 4]) -> Arc<Client> {
    let limits = Limits {
        unauthenticated: 1,
        min_age: Duration::from_secs(1),
        delayed: 1,
        max_age: Duration::from_secs(5),
        max_stall: Duration::from_secs(5),
        received: 8,
        authenticated: 1,
        authenticated_by_address: 1,
        waiting: 1,
        waiting_in_all: 1,
        waiting_by_address: 1,
        rejected: 1,
    };
    let (stream, _other) = tokio::io::duplex(64);
    let connections = Connections::new(limits);
    connections.admit(stream, IpAddr::from(address)).client()
}

/// Sends the review of a Bundle whose `managedFields` contain `lists` small lists.
async fn ask_from(server: &Server, client: Arc<Client>, user: &str, lists: usize) -> Value {
    let mut object = bundle();
    let lists = json!({"lists": vec![json!([0]); lists]});
    object["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": lists}]);
    let body = review(user, None, &object).to_string();
    let request = HttpRequest::post("/validate")
        .header("content-length", body.len())
        .extension(client)
        .body(Body::from(body))
        .unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    answer["response"].clone()
}

#[tokio::test(start_paused = true)]
async fn client_with_many_requesters_leaves_memory_to_reviews_of_other_addresses() {
    let server = Arc::new(server(Fake::default()));
    server.fake.stalled.store(true, Ordering::SeqCst);
    let [sender, api_server] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(client);
    // Two reviews together need almost three quarters of the memory of reviews.
    let mut stalled = Vec::new();
    for user in ["ana", "eve"] {
        let (server, client) = (Arc::clone(&server), Arc::clone(&sender));
        stalled.push(tokio::spawn(async move {
            ask_from(&server, client, user, 55_000).await
        }));
    }
    while server.fake.registry_requests.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let trees = server.budget.parsed_objects.clone();
    assert!(trees.capacity() - trees.used() > 7 << 20);
    let (refused, judged) = futures::join!(
        ask_from(&server, sender, "bob", 10_000),
        ask_from(&server, api_server, "ben", 10_000),
    );
    assert!(is_busy(&refused), "{refused}");
    assert_eq!(judged["status"]["code"], 403, "{judged}");
    for answer in stalled {
        assert!(!is_busy(&answer.await.unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_sends_the_name_of_a_requester_leaves_memory_to_this_requester() {
    let server = Arc::new(server(Fake::default()));
    server.fake.stalled.store(true, Ordering::SeqCst);
    let [sender, api_server] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(client);
    let forged = {
        let (server, client) = (Arc::clone(&server), Arc::clone(&sender));
        tokio::spawn(async move { ask_from(&server, client, "ana", 55_000).await })
    };
    while server.fake.registry_requests.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The reviews of the requester at this address have reached their limit.
    let refused = ask_from(&server, Arc::clone(&sender), "ana", 40_000).await;
    assert!(is_busy(&refused), "{refused}");
    // Small bodies with large objects also use the memory for waiting bodies.
    let small =
        |client: &Arc<Client>| Box::pin(ask_from(&server, Arc::clone(client), "ana", 9_000));
    let mut waiting: Vec<_> = (0..40).map(|_| small(&sender)).collect();
    for one in &mut waiting {
        let waited = tokio::time::timeout(Duration::from_millis(1), one).await;
        assert!(waited.is_err() || is_busy(&waited.unwrap()));
    }
    let began = Instant::now();
    let (large, small) = futures::join!(
        ask_from(&server, Arc::clone(&api_server), "ana", 20_000),
        small(&api_server),
    );
    for judged in [large, small] {
        // The lookup of the image stalls until the deadline.
        let message = judged["status"]["message"].as_str().unwrap();
        assert!(message.contains("BUNDLE-REVIEW-021"), "{message}");
    }
    assert_eq!(began.elapsed().as_secs(), 8);
    assert!(!is_busy(&forged.await.unwrap()));
}

/// Returns the text of a review with its fields in the order of API servers: the requester comes
/// before the objects.
fn in_order(review: &Value) -> String {
    let request = review["request"].as_object().unwrap();
    let is_object = |name: &str| ["object", "oldObject"].contains(&name);
    let (objects, others): (Vec<_>, Vec<_>) = request.iter().partition(|(name, _)| is_object(name));
    let fields = others.into_iter().chain(objects);
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    let fields = fields.collect::<Vec<_>>().join(",");
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{{fields}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn large_bodies_that_arrive_delay_no_review_of_another_requester_at_the_address() {
    let server = Arc::new(server(Fake::default()));
    let api_server = client([10, 0, 0, 1]);
    let send = |user: &'static str, is_complete: bool| {
        let mut text = in_order(&review(user, None, &large(1 << 20, false)));
        let length = text.len();
        let body = if is_complete {
            Body::from(text)
        } else {
            text.truncate(10 << 10);
            let first = stream::iter([Ok::<_, io::Error>(text)]);
            Body::from_stream(first.chain(stream::pending()))
        };
        let request = HttpRequest::post("/validate")
            .header("content-length", length)
            .extension(Arc::clone(&api_server))
            .body(body)
            .unwrap();
        let server = Arc::clone(&server);
        async move {
            let began = Instant::now();
            let response = server.router.clone().oneshot(request).await.unwrap();
            (response.status(), began.elapsed().as_secs())
        }
    };
    let stalled: Vec<_> = (0..50)
        .map(|_| tokio::spawn(send("mallory", false)))
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (slots, bodies) = (&server.budget.large_arrivals, &server.budget.bodies);
    let used = bodies.used();
    assert_eq!(slots.used(), slots.capacity() / 4);
    assert!(used > 2 << 20 && used <= bodies.capacity() / 4, "{used}");
    assert_eq!(send("eve", true).await, (StatusCode::OK, 0));
    let expected = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
    for ended in stalled {
        let (status, _) = ended.await.unwrap();
        assert!(expected.contains(&status), "{status}");
    }
    assert_eq!((slots.used(), bodies.used()), (0, 0));
}

#[tokio::test]
async fn response_longer_than_its_review_reserves_memory_or_is_short() {
    let server = server(Fake::default());
    let class = json!({
        "kind": "ProvisionerClass",
        "metadata": {"name": "n".repeat(512)},
        // Each of the 100 findings contains the long name of the class, so the response is long.
        "spec": {"provisioner": "core.rukpak.io/plain", "sources": {"types": vec![0; 100]}},
    });
    let mut review = review("ana", None, &class);
    // A review also reserves memory for copies of the requester's identity, so this identity is
    // short.
    review["request"]["userInfo"] = json!({"username": "ana"});
    let review = review.to_string();
    let trees = server.budget.parsed_objects.clone();
    let respond = async || {
        let before = trees.used();
        let response = server.respond("/validate", review.clone()).await;
        let added = trees.used() - before;
        let (parts, body) = response.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        assert_eq!(added, text.len() as u64, "{}", review.len());
        (parts, text)
    };
    let (first, long) = respond().await;
    assert!(long.len() > 50 << 10, "{}", long.len());
    // One byte of the memory of the requester is missing for a second long response.
    let rest = trees.capacity() / 2 - 2 * long.len() as u64 + 1;
    // Reviews without a client address count for this address.
    let client = Some(Ipv4Addr::UNSPECIFIED.into());
    let caps = Budget::of_review(&trees, "ana", client);
    let others = trees.try_take(rest, caps).unwrap();
    let (second, short) = respond().await;
    assert!(short.len() < 2 << 10, "{}", short.len());
    let answer: Value = serde_json::from_slice(&short).unwrap();
    assert!(is_busy(&answer["response"]), "{answer}");
    drop((first, second, others));
    assert_eq!(trees.used(), 0);
}

/// Returns a BundleDeployment that `ana` has written as a member of many groups, and the memory of
/// the facts that its stamp proves.
fn deployment_with_large_stamp(now: Timestamp) -> (Value, u64) {
    let spec = json!({"provisionerClassName": "plain", "template": {"spec": bundle()["spec"]}});
    let requester = Requester {
        user: "ana".to_owned(),
        groups: (0..2_000).map(|number| format!("{number:040}")).collect(),
        ..Requester::default()
    };
    let stamp = Stamp {
        time: now.as_millisecond(),
        kind: "BundleDeployment".to_owned(),
        name: "web".to_owned(),
        target: None,
        spec: written_digest(&spec),
        parts: PartRequesters::all(&requester),
        approves: None,
        generated_for: None,
        owners: None,
        admitted_at: None,
    };
    let stored = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {
            "name": "web",
            "uid": "u1",
            "generation": 1,
            "creationTimestamp": now.to_string(),
            "annotations": {ANNOTATION_STAMP: stamp.text(KEY)},
        },
        "spec": spec,
    });
    let kind = Kind::BundleDeployment;
    let facts = stored_object::from_review(kind, "web", &stored, now.as_millisecond());
    let memory = facts.facts_memory().0;
    (stored, memory)
}

#[tokio::test(start_paused = true)]
async fn facts_of_a_large_stamp_have_reserved_memory_while_a_lookup_stalls() {
    let server = Arc::new(server(Fake::default()));
    server.fake.stalled.store(true, Ordering::SeqCst);
    let now = server.fake.state.lock().unwrap().now;
    let (stored, facts) = deployment_with_large_stamp(now);
    assert!(facts > 200 << 10, "{facts}");
    let mut changed = stored.clone();
    changed["spec"]["template"]["spec"]["source"]["image"]["ref"] =
        "registry.example.com/web:2".into();
    let review = review("ana", Some(&stored), &changed);
    let ask = || {
        let (server, review) = (Arc::clone(&server), review.clone());
        tokio::spawn(async move { server.ask("/validate", &review).await })
    };
    let stalled = ask();
    while server.fake.registry_requests.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let trees = server.budget.parsed_objects.clone();
    let used = trees.used();
    assert!(used > facts);
    assert_eq!(stalled.await.unwrap()["status"]["code"], 503);
    assert_eq!(trees.used(), 0);
    // One byte of memory is missing for the facts, and the memory of the objects is free.
    let rest = trees.capacity() - used + 1;
    let others = trees.take(rest, Vec::new()).await.unwrap();
    let answer = ask().await.unwrap();
    assert!(is_busy(&answer), "{answer}");
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("the stamp and the seal"), "{message}");
    // A review that waits for the memory of the facts continues when this memory is free.
    server.fake.stalled.store(false, Ordering::SeqCst);
    let waiting = ask();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    drop(others);
    let answer = waiting.await.unwrap();
    assert!(!is_busy(&answer), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn review_of_a_generated_bundle_waits_for_memory_without_its_deployment() {
    let (deployment, facts) = deployment_with_large_stamp(FakeState::default().now);
    assert!(facts > 200 << 10, "{facts}");
    let review = review(OWN, None, &generated_bundle(&deployment));
    let server = Arc::new(server(Fake {
        deployment: Some(deployment),
        ..Fake::default()
    }));
    // The free memory is enough for the review, but not for the facts.
    let trees = server.budget.parsed_objects.clone();
    let others = trees.take(trees.capacity() - (150 << 10), Vec::new());
    let others = others.await.unwrap();
    let waiting = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.ask("/validate", &review).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    assert!(trees.used() > others.weight());
    assert_eq!(Arc::strong_count(&server.fake.held_deployments), 1);
    drop(others);
    let answer = waiting.await.unwrap();
    assert!(!is_busy(&answer), "{answer}");
    assert_eq!(trees.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn status_of_an_object_uses_no_memory_while_a_lookup_stalls() {
    let server = Arc::new(server(Fake::default()));
    server.fake.stalled.store(true, Ordering::SeqCst);
    let mut object = bundle();
    object["status"]["lists"] = json!(vec![json!([0]); 20_000]);
    let mut review = review("ana", None, &object);
    // A review also reserves memory for copies of the requester's identity, so this identity is
    // short.
    review["request"]["userInfo"] = json!({"username": "ana"});
    let body = review.to_string().len() as u64;
    let stalled = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.ask("/mutate", &review).await })
    };
    while server.fake.registry_requests.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The review keeps memory for the text of its body.
    let used = server.budget.parsed_objects.used();
    assert!((body..body + (16 << 10)).contains(&used), "{body} {used}");
    stalled.await.unwrap();
}
