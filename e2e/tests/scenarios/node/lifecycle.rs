//! Lifecycle of a release on a node: `helm install` from the registry, a bundle that the pods
//! install, `helm test`, `helm upgrade`, and `helm uninstall`, which removes all objects.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::release::{NAMESPACE, RELEASE, RELEASE_NAMESPACE};
use e2e::{Cluster, wait};
use serde_json::{Value, json};

use super::super::cli::install::dump;
use super::super::objects::{apply_with, get, kubectl};
use super::{CLASS, plugin, publish, start};

/// Time limit of a removal. The namespace controller pauses for minutes if kinds are deleted while
/// it lists their objects.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(300);
const GREETING: &str = "apiVersion: v1
kind: Namespace
metadata: {name: node-greeting}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting, namespace: node-greeting}
data: {text: hello}
";

/// Returns all objects of the cluster. Excludes the Node and its Lease, because the kubelet changes
/// both continuously.
async fn objects(cluster: &Cluster) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut objects = dump(cluster).await?;
    objects
        .retain(|key, _| !(key.starts_with("v1 Node ") || key.contains(" kube-node-lease/node-")));
    Ok(objects)
}

async fn pods(cluster: &Cluster) -> Vec<Value> {
    let line = format!("get pods -n {NAMESPACE} -l app.kubernetes.io/name={RELEASE} -o json");
    let list: Value = serde_json::from_str(&kubectl(cluster, &line).await).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Checks that two pods are ready, were never restarted, and have this image.
async fn assert_two_ready_pods(cluster: &Cluster, digest: &Value) {
    let pods = pods(cluster).await;
    let live: Vec<&Value> = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .collect();
    assert_eq!(live.len(), 2, "{live:?}");
    for pod in live {
        let status = &pod["status"]["containerStatuses"][0];
        assert_eq!(status["ready"], true, "{status}");
        assert_eq!(status["restartCount"], 0, "{status}");
        let image = status["imageID"].as_str().unwrap();
        assert!(image.ends_with(digest.as_str().unwrap()), "{image}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_release_is_installed_upgraded_and_removed_without_trace() {
    let node = &start().await;
    let cluster = &node.cluster;
    let before = objects(cluster).await.unwrap();
    let digest = &node.values["image"]["digest"];

    let notes = node.release("install", &node.values).await.unwrap();
    assert!(notes.contains("STATUS: deployed"), "{notes}");
    assert_two_ready_pods(cluster, digest).await;
    let namespace = get(cluster, &format!("namespace {NAMESPACE}"))
        .await
        .unwrap();
    assert_eq!(
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
        "restricted"
    );
    node.release("upgrade", &node.values).await.unwrap();

    // The pods review the write, pull from the registry, whose certificate authority is private,
    // and install the objects.
    let reference = publish(node, "node-greeting", GREETING).await;
    let line = format!("deploy node-greeting {reference} --class {CLASS} --wait=healthy");
    plugin(node, &line).await;
    let text = "get configmap greeting -n node-greeting -o jsonpath={.data.text}";
    assert_eq!(kubectl(cluster, text).await, "hello");
    let outside = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": "node-outside"},
        "spec": {"provisionerClassName": CLASS, "source": {"type": "git", "git": {
            "repository": "https://git.example.com/a.git", "directory": "../outside", "ref": {"branch": "main"},
        }}},
    });
    let rejected = apply_with(cluster, &outside, &["--dry-run=server"]).await;
    let rejected = rejected.failure(1).unwrap();
    assert!(rejected.contains("denied the request"), "{rejected}");

    let tested = node
        .helm(
            &format!("test {RELEASE} --namespace {RELEASE_NAMESPACE}"),
            None,
        )
        .await;
    let tested = tested.unwrap().success().unwrap();
    assert!(tested.contains("Phase:          Succeeded"), "{tested}");

    // Changed arguments replace the pods one after the other. The new pods keep the installed
    // objects.
    let mut values = node.values.clone();
    values["log"]["level"] = "info,bundle_webhook=debug".into();
    node.release("upgrade", &values).await.unwrap();
    wait::until_true(Duration::from_secs(60), "two pods are left", || async {
        Ok(pods(cluster).await.len() == 2)
    })
    .await
    .unwrap();
    assert_two_ready_pods(cluster, digest).await;
    kubectl(cluster, "delete configmap greeting -n node-greeting").await;
    wait::until_true(
        Duration::from_secs(60),
        "the ConfigMap is restored",
        || async {
            Ok(get(cluster, "configmap greeting -n node-greeting")
                .await
                .is_some())
        },
    )
    .await
    .unwrap();

    plugin(node, "delete node-greeting").await;
    let line = format!(
        "uninstall {RELEASE} --namespace {RELEASE_NAMESPACE} --cascade foreground --wait --timeout 4m"
    );
    let removed = node.helm(&line, None).await.unwrap();
    removed.success().unwrap();
    wait::until_true(REMOVAL_TIMEOUT, "the cluster is as before", || async {
        let now = objects(cluster).await?;
        let different: Vec<&String> = before
            .keys()
            .chain(now.keys())
            .filter(|key| before.get(*key) != now.get(*key))
            .collect();
        anyhow::ensure!(different.is_empty(), "different: {different:?}");
        Ok(true)
    })
    .await
    .unwrap();
}
