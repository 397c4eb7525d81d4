//! The leader is killed, paused, cut off from the network, or loses its lease.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::super::objects::kubectl;
use super::load::{TARGET, is_write_request, pod, received};
use super::{
    FAILOVER, KEPT, NAMESPACE, RELEASE, holder, holder_after, installed, loaded, restored,
    until_ready,
};

/// Time after which the API server has new connections to the remaining replicas: it opens none
/// while one is open, and notices a silent peer by unanswered pings after 30 + 15 s.
const SILENT_PEER: Duration = Duration::from_secs(60);
/// Time in which the API server learns that a replica is gone.
const GAP: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn node_leader_that_is_killed_resumes_within_the_lease() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "killed").await;
    let leader = holder(node).await;
    let container = node.container(&leader).await.unwrap();
    container.kill().unwrap();
    let resumed = restored(cluster).await;
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    eprintln!("killed: resumed after {resumed:?}");
    assert!(resumed < FAILOVER, "{resumed:?}");
    outcome.assert_applied_once(2);
    // The API server repeats no review whose connection breaks.
    let reviews = &outcome.reviews;
    assert!(reviews.longest_gap < GAP, "{:?}", reviews.longest_gap);
    assert!(
        reviews
            .failed
            .iter()
            .all(|failed| failed.contains("failed calling webhook")),
        "{:?}",
        reviews.failed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn node_lease_that_is_deleted_or_taken_over_has_one_leader_at_a_time() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "deleted").await;
    let leader = holder(node).await;
    kubectl(cluster, &format!("delete lease {RELEASE} -n {NAMESPACE}")).await;
    let resumed = restored(cluster).await;
    assert_eq!(holder(node).await, leader);
    let outcome = load.end(cluster).await;
    eprintln!("deleted: resumed after {resumed:?}");
    assert!(resumed < FAILOVER, "{resumed:?}");
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(1);

    let load = loaded(node, "taken").await;
    let patch = r#"{"spec":{"holderIdentity":"nobody"}}"#;
    let line = format!("patch lease {RELEASE} -n {NAMESPACE} --type=merge --patch={patch}");
    kubectl(cluster, &line).await;
    let began = Instant::now();
    holder_after(node, "nobody").await;
    restored(cluster).await;
    let resumed = began.elapsed();
    let outcome = load.end(cluster).await;
    eprintln!("taken: resumed after {resumed:?}");
    assert!(resumed < FAILOVER, "{resumed:?}");
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(2);
}

/// Returns true if only the leader sends such a request.
fn is_of_leader(event: &Value) -> bool {
    let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
    let of_each_replica = [
        "leases",
        "secrets",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    is_write_request(event)
        && !of_each_replica.contains(&resource)
        && !resource.ends_with("reviews")
}

#[tokio::test(flavor = "multi_thread")]
async fn node_leader_that_is_paused_for_longer_than_the_lease_writes_nothing_afterwards() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "paused").await;
    let position = cluster.audit_position().unwrap();
    let leader = holder(node).await;
    let paused = node.container(&leader).await.unwrap();
    paused.pause().unwrap();
    let resumed = restored(cluster).await;
    let next = holder_after(node, &leader).await;
    let lease = node.lease().await.unwrap().unwrap().spec.unwrap();
    let acquired = lease.acquire_time.unwrap().0;
    // Both learn of the next deletions, the former leader from its open watches.
    for n in 0..4 {
        let line = format!("delete configmap {KEPT}-{n} -n {TARGET}");
        kubectl(cluster, &line).await;
    }
    paused.resume().unwrap();
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    eprintln!("paused: resumed after {resumed:?}");
    let late: Vec<Value> = cluster
        .audit_since(position)
        .unwrap()
        .into_iter()
        .filter(|event| pod(event) == leader && received(event) > acquired && is_of_leader(event))
        .collect();
    assert_eq!(
        late,
        [] as [Value; 0],
        "{next} acquired the lease at {acquired}"
    );
    assert!(resumed < FAILOVER, "{resumed:?}");
    outcome.assert_applied_once(2);
    assert!(outcome.reviews.longest_gap < SILENT_PEER);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_leader_without_network_is_replaced_within_the_lease() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "cut").await;
    let leader = holder(node).await;
    let container = node.container(&leader).await.unwrap();
    let cut = container.cut_network().unwrap();
    let resumed = restored(cluster).await;
    holder_after(node, &leader).await;
    drop(cut);
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    eprintln!("cut: resumed after {resumed:?}");
    assert!(resumed < FAILOVER, "{resumed:?}");
    outcome.assert_applied_once(2);
    assert!(
        outcome.reviews.longest_gap < SILENT_PEER,
        "{:?}",
        outcome.reviews.longest_gap
    );
}
