//! Health of Pods with a real scheduler and a real kubelet.

use std::time::Duration;

use e2e::release::NodeRelease;
use e2e::{Cluster, wait};

use super::super::objects::{condition, get, until};
use super::{CLASS, installed, plugin, publish};

/// Installs a bundle with one object in namespace `name`, waits until `Healthy` has this status,
/// and returns its message.
async fn verdict(node: &NodeRelease, name: &str, object: &str, status: &str) -> String {
    let cluster: &Cluster = &node.cluster;
    let manifests =
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n{object}");
    let reference = publish(node, name, &manifests).await;
    let line = format!("deploy {name} {reference} --class {CLASS} --wait");
    plugin(node, &line).await;
    until(
        cluster,
        &format!("bundledeployment {name}"),
        "Healthy",
        status,
    )
    .await
}

fn pod(name: &str, image: &str, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: pod, namespace: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: {image}
{more}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn node_pods_have_the_health_that_scheduler_and_kubelet_report() {
    let node = &*installed().await;
    let image = node.cluster.registry(0).unwrap().reference("busybox:1");

    let name = "node-available";
    let deployment = format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: {name}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{{name: main, image: '{image}'}}]
"
    );
    let message = verdict(node, name, &deployment, "True").await;
    assert_eq!(message, "every object is healthy");

    let name = "node-unschedulable";
    let nowhere = pod(name, &image, "  nodeSelector: {kubernetes.io/os: plan9}\n");
    let message = verdict(node, name, &nowhere, "False").await;
    assert!(
        message.contains("Unschedulable: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector"),
        "{message}"
    );

    let name = "node-missing-image";
    let missing = node.cluster.registry(0).unwrap().reference("node-absent:1");
    let message = until_reason(node, name, &pod(name, &missing, ""), "ImagePull").await;
    assert!(message.contains("container main: "), "{message}");
    assert!(message.contains("not found"), "{message}");

    let name = "node-crash";
    let crash = pod(name, &image, "    command: [/bin/false]\n");
    let message = until_reason(node, name, &crash, "CrashLoopBackOff").await;
    assert!(
        message.contains("container main: CrashLoopBackOff"),
        "{message}"
    );
}

/// Like [`verdict`], for an unhealthy object whose message contains this word.
async fn until_reason(node: &NodeRelease, name: &str, object: &str, word: &str) -> String {
    verdict(node, name, object, "False").await;
    let what = format!("bundledeployment {name}");
    wait::until(Duration::from_secs(60), &what, || async {
        let object = get(&node.cluster, &what).await.unwrap_or_default();
        let message = condition(&object, "Healthy")["message"]
            .as_str()
            .unwrap_or_default();
        anyhow::ensure!(message.contains(word), "{message}");
        Ok(Some(message.to_owned()))
    })
    .await
    .unwrap()
}
