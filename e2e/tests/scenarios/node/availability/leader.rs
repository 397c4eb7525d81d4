//! The leader is killed, paused, cut off from the network, or loses its lease.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::super::super::objects::kubectl;
use super::load::{TARGET, is_write_request, pod, received};
use super::{
    NAMESPACE, RELEASE, RESTORED_DEPLOYMENT, acquired_after, assert_restored, holder, installed,
    loaded, until_ready,
};

/// Time after which the API server has replaced its connections to a replica that no longer
/// responds. The API server sends a ping on an idle connection after 30 s, and closes the
/// connection if there is no response within 15 s.
const SILENT_PEER: Duration = Duration::from_secs(60);
/// Maximum time until the API server detects on a busy machine that a replica has ended. This time
/// is well below [`SILENT_PEER`].
const GAP: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn node_leader_that_is_killed_resumes_within_the_lease() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "killed").await;
    let leader = holder(node).await;
    let container = node.container(&leader).await.unwrap();
    let disturbed = Timestamp::now();
    container.kill().unwrap();
    acquired_after(node, disturbed).await;
    assert_restored(cluster).await;
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    outcome.assert_applied_once(2);
    // If a connection breaks, the API server does not repeat the reviews that it sent on this
    // connection.
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
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_lease_that_is_deleted_or_taken_over_has_one_leader_at_a_time() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "deleted").await;
    let leader = holder(node).await;
    kubectl(cluster, &format!("delete lease {RELEASE} -n {NAMESPACE}")).await;
    assert_restored(cluster).await;
    assert_eq!(holder(node).await, leader);
    let outcome = load.end(cluster).await;
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(1);

    let load = loaded(node, "taken").await;
    let patch = r#"{"spec":{"holderIdentity":"other"}}"#;
    let line = format!("patch lease {RELEASE} -n {NAMESPACE} --type=merge --patch={patch}");
    let disturbed = Timestamp::now();
    kubectl(cluster, &line).await;
    acquired_after(node, disturbed).await;
    assert_restored(cluster).await;
    let outcome = load.end(cluster).await;
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(2);
}

/// Returns `true` if only the leader sends requests like `event`.
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
    let disturbed = Timestamp::now();
    paused.pause().unwrap();
    let acquired = acquired_after(node, disturbed).await;
    let next = holder(node).await;
    assert_ne!(next, leader);
    assert_restored(cluster).await;
    // Both replicas observe the next deletions. The former leader observes these deletions in its
    // open watches.
    for n in 0..4 {
        let line = format!("delete configmap {RESTORED_DEPLOYMENT}-{n} -n {TARGET}");
        kubectl(cluster, &line).await;
    }
    paused.resume().unwrap();
    until_ready(node).await;
    let outcome = load.end(cluster).await;
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
    outcome.assert_applied_once(2);
    assert!(outcome.reviews.longest_gap < SILENT_PEER);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_leader_without_network_is_replaced_within_the_lease() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "cut").await;
    let leader = holder(node).await;
    let container = node.container(&leader).await.unwrap();
    let disturbed = Timestamp::now();
    let cut = container.cut_network().unwrap();
    acquired_after(node, disturbed).await;
    assert_ne!(holder(node).await, leader);
    assert_restored(cluster).await;
    drop(cut);
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    outcome.assert_applied_once(2);
    assert!(
        outcome.reviews.longest_gap < SILENT_PEER,
        "{:?}",
        outcome.reviews.longest_gap
    );
}
