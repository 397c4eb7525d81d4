//! Two replicas on a node under continuous reviews and installations, while one of them, the
//! control plane or the release is disturbed. `load` requests and counts, `leader` disturbs the
//! leader, `control_plane` the cluster, `releases` the pods' certificates and version.

use std::time::{Duration, Instant};

use e2e::release::{NAMESPACE, NodeRelease, RELEASE};
use e2e::{Cluster, wait};
use serde_json::Value;

use super::super::objects::{get, kubectl, until};
use super::installed;

mod control_plane;
mod leader;
mod load;
mod releases;

const LONG: Duration = Duration::from_secs(120);
/// Default of `--lease-duration`, and the time that the next leader needs to begin.
const FAILOVER: Duration = Duration::from_secs(17);
/// Name of the BundleDeployment whose objects the leader restores.
const KEPT: &str = "kept";

/// Returns the pod that holds the lease, unless it is `former`.
async fn holder_after(node: &NodeRelease, former: &str) -> String {
    wait::until(LONG, "another pod holds the lease", || async {
        Ok(node.holder().await?.filter(|holder| holder != former))
    })
    .await
    .unwrap()
}

async fn holder(node: &NodeRelease) -> String {
    holder_after(node, "").await
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
    load::install_one(cluster, KEPT).await;
    until(
        cluster,
        &format!("bundledeployment {KEPT}"),
        "Installed",
        "True",
    )
    .await;
    restored(cluster).await;
    load::Load::start(cluster, name).await
}

/// Deletes an object of an installed bundle, and returns the time after which it is restored.
async fn restored(cluster: &Cluster) -> Duration {
    let object = format!("configmap {KEPT}-0 -n {}", load::TARGET);
    kubectl(cluster, &format!("delete {object}")).await;
    let began = Instant::now();
    wait::until_true(LONG, "the ConfigMap is restored", || async {
        Ok(get(cluster, &object).await.is_some())
    })
    .await
    .unwrap();
    began.elapsed()
}
