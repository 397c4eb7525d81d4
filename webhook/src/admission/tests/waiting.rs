//! Reviews that wait until other reviews of the same requester release memory.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::*;

/// Returns a Bundle with `text` bytes of text. If `is_heavy` is true, the Bundle needs more than
/// half of the memory of reviews.
fn large(text: usize, is_heavy: bool) -> Value {
    let mut object = bundle();
    object["spec"]["other"] = "x".repeat(text).into();
    if is_heavy {
        // The lists are in the status, because the size limit of an object does not include the
        // status.
        object["status"]["lists"] = json!(vec![json!([0]); 90_000]);
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
    // The second review is rejected at once. If this review waited, its body would use memory that
    // the bodies of other requesters need.
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

#[tokio::test]
async fn response_longer_than_its_review_reserves_memory_or_is_short() {
    let server = server(Fake::default());
    let class = json!({
        "kind": "ProvisionerClass",
        "metadata": {"name": "n".repeat(4 << 10)},
        // Each of the 100 findings contains the long name of the class, so the response is long.
        "spec": {"provisioner": "core.rukpak.io/plain", "sources": {"types": vec![0; 100]}},
    });
    let mut review = review("ana", None, &class);
    // A review also reserves memory for copies of the requester's identity, so this identity is
    // short.
    review["request"]["userInfo"] = json!({"username": "ana"});
    let review = review.to_string();
    let trees = server.budget.parsed_objects.clone();
    let mut held = Vec::new();
    loop {
        let before = trees.used();
        let response = server.respond("/validate", review.clone()).await;
        let added = trees.used() - before;
        let (parts, body) = response.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        assert_eq!(added, text.len() as u64, "{}", review.len());
        held.push(parts);
        if text.len() < 2 << 10 {
            let answer: Value = serde_json::from_slice(&text).unwrap();
            assert!(is_busy(&answer["response"]), "{answer}");
            break;
        }
        assert!(text.len() > 400 << 10);
    }
    assert!(trees.used() <= trees.capacity() / 2 + review.len() as u64);
    drop(held);
    assert_eq!(trees.used(), 0);
}
