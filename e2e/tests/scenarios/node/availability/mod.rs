//! Two replicas on a node under continuous reviews and installations, while a replica, the control
//! plane or the release is disturbed. `load` sends and counts requests. `leader` disturbs the
//! leader, `control_plane` disturbs the cluster, and `releases` changes certificates and version of
//! the pods.
#![expect(
    clippy::print_stderr,
    reason = "times and counts are for the person who runs the scenarios"
)]

use std::time::{Duration, Instant};

use e2e::release::{NAMESPACE, NodeRelease, RELEASE};
use e2e::{Cluster, wait};
use jiff::Timestamp;
use serde_json::Value;

use super::super::objects::{get, kubectl, until};
use super::installed;

mod control_plane;
mod leader;
mod load;
mod releases;

const LONG: Duration = Duration::from_secs(120);
/// Maximum time of a failover: the default of `--lease-duration`, which is 15 s, plus the time that
/// the next leader needs on a busy machine to acquire the lease.
const FAILOVER: Duration = Duration::from_secs(30);
/// Time limit for restoring an object on a busy machine.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the BundleDeployment whose objects the leader restores.
const RESTORED_DEPLOYMENT: &str = "kept";

/// Returns the pod that holds the lease.
async fn holder(node: &NodeRelease) -> String {
    wait::until(LONG, "a pod holds the lease", || node.holder())
        .await
        .unwrap()
}

/// Returns the names of the pods of the release.
async fn pods(node: &NodeRelease) -> Vec<String> {
    let pods = node.pods().await.unwrap();
    pods.into_iter()
        .filter_map(|pod| pod.metadata.name)
        .collect()
}

async fn until_ready(node: &NodeRelease) {
    wait::until_true(LONG, "both replicas are ready", || async {
        let deployment = get(
            &node.cluster,
            &format!("deployment {RELEASE} -n {NAMESPACE}"),
        )
        .await;
        let status: Value = deployment.unwrap_or_default()["status"].clone();
        let is_ready = status["readyReplicas"] == 2
            && status["replicas"] == 2
            && status["updatedReplicas"] == 2;
        Ok(is_ready && node.pods().await?.len() == 2)
    })
    .await
    .unwrap();
}

/// Waits for two ready replicas and a leader, and starts a load.
async fn loaded(node: &NodeRelease, name: &'static str) -> load::Load {
    let cluster = &node.cluster;
    until_ready(node).await;
    load::install_one(cluster, RESTORED_DEPLOYMENT).await;
    until(
        cluster,
        &format!("bundledeployment {RESTORED_DEPLOYMENT}"),
        "Installed",
        "True",
    )
    .await;
    assert_restored(cluster).await;
    load::Load::start(cluster, name).await
}

/// Deletes an object of an installed bundle, and waits until the object is restored.
async fn assert_restored(cluster: &Cluster) {
    let object = format!("configmap {RESTORED_DEPLOYMENT}-0 -n {}", load::TARGET);
    let exists = || async { Ok(get(cluster, &object).await.is_some()) };
    wait::until_true(RESTORE_TIMEOUT, "the ConfigMap exists", exists)
        .await
        .unwrap();
    kubectl(cluster, &format!("delete {object}")).await;
    let began = Instant::now();
    wait::until_true(RESTORE_TIMEOUT, "the ConfigMap is restored", exists)
        .await
        .unwrap();
    eprintln!("restored after {:?}", began.elapsed());
}

/// Returns the time at which a replica acquired the lease after a disturbance. Checks that the
/// replica acquired the lease within [`FAILOVER`].
async fn acquired_after(node: &NodeRelease, disturbed: Timestamp) -> Timestamp {
    let acquired = wait::until(LONG, "a replica acquires the lease", || async {
        let lease = node.lease().await?.and_then(|lease| lease.spec);
        let at = lease.and_then(|spec| spec.acquire_time).map(|at| at.0);
        Ok(at.filter(|at| *at > disturbed))
    })
    .await
    .unwrap();
    let time = acquired.duration_since(disturbed).unsigned_abs();
    eprintln!("lease acquired after {time:?}");
    assert!(time < FAILOVER, "{time:?}");
    acquired
}
