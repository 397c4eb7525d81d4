//! The API server restarts, the node is drained, and a whole cluster starts with all pods down.

use std::time::{Duration, Instant};

use e2e::{Cluster, Tool, wait};
use serde_json::json;

use super::super::super::objects::{kubectl, try_kubectl};
use super::{
    NAMESPACE, RELEASE, RESTORED_DEPLOYMENT, assert_restored, installed, load, loaded, pods,
    until_ready,
};

const LONG: Duration = Duration::from_secs(120);
/// Time limit for the start of a whole cluster with two replicas, on two busy cores.
const COLD_START: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_restart_of_the_api_server_fails_no_review() {
    let node = &mut *installed().await;
    let load = loaded(node, "restarted").await;
    node.cluster.restart_api_server().await.unwrap();
    let cluster = &node.cluster;
    assert_restored(cluster).await;
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    outcome.assert_no_failed_review();
    outcome.assert_applied_once(2);
}

/// Requests the eviction of a pod, as `kubectl drain` does.
async fn evict(cluster: &Cluster, pod: &str) {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = kubectl
        .args(["create", "--raw", &path, "-f", "-"])
        .stdin(eviction.to_string());
    created.output().await.unwrap().success().unwrap();
}

/// The cluster has one node, so the replacement of an evicted pod cannot start during the drain.
/// Therefore the drain evicts one pod, and the PodDisruptionBudget protects the other pod until the
/// first pod is replaced. Then the other pod is evicted.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_drain_evicts_one_replica_after_the_other_and_fails_no_review() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "drained").await;
    let before = pods(node).await;
    let line = format!(
        "drain node-1 --pod-selector=app.kubernetes.io/name={RELEASE} --delete-emptydir-data --timeout=20s"
    );
    let drained = try_kubectl(cluster, &line).await.failure(1).unwrap();
    assert!(drained.contains("disruption budget"), "{drained}");
    kubectl(cluster, "uncordon node-1").await;
    until_ready(node).await;
    let after = pods(node).await;
    let left: Vec<&String> = before.iter().filter(|pod| after.contains(pod)).collect();
    assert_eq!(left.len(), 1, "{before:?} {after:?}");
    evict(cluster, left[0]).await;
    assert_restored(cluster).await;
    wait::until_true(LONG, "the pod is gone", || async {
        Ok(!pods(node).await.contains(left[0]))
    })
    .await
    .unwrap();
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(3);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_cluster_starts_with_registered_webhooks_and_without_pods() {
    let node = &mut *installed().await;
    load::install_one(&node.cluster, RESTORED_DEPLOYMENT).await;
    let scale =
        |replicas: u8| format!("scale deployment {RELEASE} -n {NAMESPACE} --replicas={replicas}");
    kubectl(&node.cluster, &scale(0)).await;
    wait::until_true(LONG, "all pods are gone", || async {
        Ok(pods(node).await.is_empty())
    })
    .await
    .unwrap();
    node.cluster.stop_control_plane().unwrap();
    node.cluster.start_control_plane().await.unwrap();
    let cluster = &node.cluster;
    let rejected = load::review_once(cluster, "cold").await.unwrap_err();
    assert!(rejected.contains("failed calling webhook"), "{rejected}");

    let began = Instant::now();
    kubectl(cluster, &scale(2)).await;
    wait::until_true(COLD_START, "a review is admitted", || async {
        load::review_once(cluster, "cold")
            .await
            .map(|()| true)
            .map_err(anyhow::Error::msg)
    })
    .await
    .unwrap();
    eprintln!("cold: first review after {:?}", began.elapsed());
    until_ready(node).await;
    assert_restored(cluster).await;
}
