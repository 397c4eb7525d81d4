//! Two replicas on a node under continuous admission, while one of them is killed or replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::cluster::node::kill_container;
use e2e::{Cluster, wait};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::super::objects::{get, kubectl};
use super::{CLASS, NAMESPACE, NodeCluster, RELEASE, installed};

const LONG: Duration = Duration::from_secs(120);
/// Default of `--lease-duration`, and the time until the next holder starts.
const FAILOVER: Duration = Duration::from_secs(17);

/// Time until the API server detects a missing replica.
const GAP: Duration = Duration::from_secs(5);

/// Results of consecutive reviews.
#[derive(Default)]
struct Reviews {
    admitted: usize,
    failures: Vec<String>,
    /// Longest time between two admitted reviews.
    longest_gap: Duration,
}

/// Requests dry runs of one object until `stop` is set.
async fn review(client: Client, reference: String, stop: Arc<AtomicBool>) -> Reviews {
    let kind = GroupVersionKind::gvk("core.rukpak.io", "v1alpha1", "BundleDeployment");
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "node-review"},
        "spec": {"provisionerClassName": CLASS, "template": {"spec": {
            "provisionerClassName": CLASS,
            "source": {"type": "image", "image": {"ref": reference}},
        }}},
    }))
    .unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut reviews = Reviews::default();
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match api.create(&params, &object).await {
            Ok(_) => {
                reviews.admitted += 1;
                reviews.longest_gap = reviews.longest_gap.max(last.elapsed());
                last = Instant::now();
            }
            Err(error) => reviews.failures.push(error.to_string()),
        }
    }
    reviews
}

/// Returns the ID of the container of a pod.
async fn container(cluster: &Cluster, pod: &str) -> String {
    let pod = get(cluster, &format!("pod {pod} -n {NAMESPACE}"))
        .await
        .unwrap();
    let id = pod["status"]["containerStatuses"][0]["containerID"]
        .as_str()
        .unwrap();
    id.trim_start_matches("containerd://").to_owned()
}

/// Returns the pod that holds the lease. The lease has no holder for a short time after a restart.
async fn holder(cluster: &Cluster) -> String {
    wait::until(LONG, "a pod holds the lease", || async {
        let lease = get(cluster, &format!("lease {RELEASE} -n {NAMESPACE}")).await;
        let lease = lease.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if holder.is_empty() {
            return Ok(None);
        }
        let pod = get(cluster, &format!("pod {holder} -n {NAMESPACE}")).await;
        Ok(pod.map(|_| holder.to_owned()))
    })
    .await
    .unwrap()
}

async fn until_ready(cluster: &Cluster) {
    wait::until_true(LONG, "both replicas are ready", || async {
        let deployment = get(cluster, &format!("deployment {RELEASE} -n {NAMESPACE}")).await;
        let status: Value = deployment.unwrap_or_default()["status"].clone();
        Ok(status["readyReplicas"] == 2
            && status["replicas"] == 2
            && status["updatedReplicas"] == 2)
    })
    .await
    .unwrap();
}

/// Requests reviews while `disturb` runs and until both replicas are ready again.
async fn reviews_during<F: Future<Output = ()>>(
    node: &NodeCluster,
    reference: &str,
    disturb: F,
) -> Reviews {
    let stop = Arc::new(AtomicBool::new(false));
    let client = node.cluster.client().await.unwrap();
    let task = tokio::spawn(review(client, reference.to_owned(), Arc::clone(&stop)));
    disturb.await;
    until_ready(&node.cluster).await;
    stop.store(true, Ordering::Relaxed);
    task.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn node_replicas_survive_a_rolling_restart_without_failed_review_and_a_kill_within_the_lease()
{
    let node = installed().await;
    let cluster = &node.cluster;
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: node-kept}\n---\n\
        apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, namespace: node-kept}\n";
    let reference = node.publish("node-kept", text).await;
    let line = format!("deploy node-kept {reference} --class {CLASS} --wait");
    node.plugin(&line).await.success().unwrap();
    until_ready(cluster).await;

    let restart = format!("rollout restart deployment {RELEASE} -n {NAMESPACE}");
    let rolling = reviews_during(node, &reference, async {
        kubectl(cluster, &restart).await;
        let status = format!("rollout status deployment {RELEASE} -n {NAMESPACE} --timeout 110s");
        kubectl(cluster, &status).await;
    })
    .await;
    assert!(rolling.admitted > 0);
    assert_eq!(rolling.failures, Vec::<String>::new());

    let leader = holder(cluster).await;
    let began = Instant::now();
    let killed = reviews_during(node, &reference, async {
        let id = container(cluster, &leader).await;
        assert!(kill_container(&id).unwrap() > 0);
        kubectl(cluster, "delete configmap kept -n node-kept").await;
        wait::until_true(LONG, "the ConfigMap is restored", || async {
            Ok(get(cluster, "configmap kept -n node-kept").await.is_some())
        })
        .await
        .unwrap();
        assert!(began.elapsed() < FAILOVER, "{:?}", began.elapsed());
    })
    .await;
    // Reviews on their way to the replica fail with it, and so do those of the second until its endpoint is gone.
    assert!(killed.admitted > 0);
    assert!(
        killed.longest_gap < GAP,
        "no review was admitted for {:?}; {} failed, such as {:?}",
        killed.longest_gap,
        killed.failures.len(),
        killed.failures.first()
    );
}
