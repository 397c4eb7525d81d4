//! Trees of a BundleDeployment with the objects that Kubernetes' controllers create.

use std::sync::Mutex;

use e2e::cluster::AuditReader;
use e2e::{Cluster, wait};
use serde_json::Value;

use super::plugin;
use crate::scenarios::reconcile::{CONFIG, LONG, bundle_of, get, kubectl, publish, stage, staged};

const WORKLOAD: &str = "---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'registry.example.com/web:1.4.0'}]}
";

/// Installs a Deployment, and waits until its Pod exists.
async fn install(cluster: &Cluster) {
    kubectl(cluster, "create namespace team-a").await;
    let manifests = format!("{CONFIG}{WORKLOAD}");
    let one = publish(cluster, "team/web:1", |f| bundle_of(f, "web", &manifests)).await;
    let deployed = plugin(cluster, &format!("deploy web {one} --wait")).await;
    deployed.success().unwrap();
    wait::until_true(LONG, "the pod exists", || async {
        let pods = get(cluster, "pods -n team-a").await.unwrap();
        Ok(pods["items"].as_array().is_some_and(|pods| pods.len() == 1))
    })
    .await
    .unwrap();
}

fn kinds(node: &Value) -> Vec<String> {
    let mut kinds = vec![node["kind"].as_str().unwrap().to_owned()];
    for child in node["children"].as_array().into_iter().flatten() {
        kinds.extend(self::kinds(child));
    }
    kinds
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_has_recorded_objects_and_their_owned_objects_but_no_labelled_ones() {
    let (cluster, _webhook) = stage().await;
    install(&cluster).await;
    // This ConfigMap has the labels of an installed object, but bundle-webhook did not create it.
    let installed = get(&cluster, "configmap web -n team-a").await.unwrap();
    kubectl(&cluster, "create configmap forged -n team-a").await;
    for (label, value) in installed["metadata"]["labels"].as_object().unwrap() {
        let value = value.as_str().unwrap();
        let line = format!("label configmap forged -n team-a {label}={value}");
        kubectl(&cluster, &line).await;
    }
    let output = plugin(&cluster, "tree web -o json").await;
    let tree: Value = serde_json::from_str(&output.success().unwrap()).unwrap();
    assert_eq!(
        kinds(&tree),
        [
            "BundleDeployment.core.rukpak.io",
            "Bundle.core.rukpak.io",
            "ConfigMap",
            "Deployment.apps",
            "ReplicaSet.apps",
            "Pod"
        ],
        "{tree:#}"
    );
    assert_eq!(tree["children"][0]["health"], "Ready");
    assert_eq!(tree["unread"], Value::Array(Vec::new()));

    let text = plugin(&cluster, "tree web").await.success().unwrap();
    for expected in [
        "└─ Deployment/web ",
        "   └─ ReplicaSet/web-",
        "      └─ Pod/web-",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }

    // A viewer of the namespace has no permission to read the inventory.
    for line in [
        "create rolebinding viewer -n team-a --clusterrole view --user vera",
        "create clusterrole kinds --verb get,list --resource bundledeployments.core.rukpak.io,bundles.core.rukpak.io",
        "create clusterrolebinding kinds --clusterrole kinds --user vera",
    ] {
        kubectl(&cluster, line).await;
    }
    let output = plugin(&cluster, "tree web --as vera").await;
    assert!(output.stdout.contains("Deployment/?"), "{output}");
    assert!(output.stdout.contains("forbidden"), "{output}");
    assert!(output.stderr.contains("[BUNDLE-CLUSTER-031]"), "{output}");
    output.success().unwrap();

    // With this permission, only the Pods are forbidden.
    for line in [
        "create role inventory -n bundle-system-state --verb get --resource configmaps",
        "create rolebinding inventory -n bundle-system-state --role inventory --user ben",
        "create clusterrole few --verb get,list --resource bundledeployments.core.rukpak.io,bundles.core.rukpak.io,configmaps,deployments.apps,replicasets.apps,events",
        "create clusterrolebinding few --clusterrole few --user ben",
    ] {
        kubectl(&cluster, line).await;
    }
    let output = plugin(&cluster, "tree web --as ben").await;
    assert!(output.stdout.contains("Pod/?"), "{output}");
    assert!(output.stdout.contains("ReplicaSet/web-"), "{output}");
    let missing = "no permission to list pods in namespace team-a";
    assert!(output.stderr.contains(missing), "{output}");
}

/// Returns `true` for a request of the administrator that lists ReplicaSets. Each watch of
/// ReplicaSets begins with a list.
fn is_list(event: &Value) -> bool {
    let user = event["user"]["username"].as_str().unwrap_or_default();
    event["verb"] == "list"
        && event["objectRef"]["resource"] == "replicasets"
        && !user.starts_with("system:")
}

/// Waits until the audit log contains `wanted` lists. The number in `seen` counts the lists that
/// were already read.
async fn until_lists(seen: &Mutex<(AuditReader, usize)>, wanted: usize, message: &str) {
    wait::until_true(LONG, message, || async {
        let mut seen = seen.lock().unwrap();
        let events = seen.0.read()?;
        seen.1 += events.iter().filter(|event| is_list(event)).count();
        Ok(seen.1 >= wanted)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_tree_is_printed_after_each_change_until_the_deployment_is_deleted() {
    let (cluster, _webhook) = staged(Cluster::builder().audit(true)).await;
    install(&cluster).await;
    let pod = kubectl(&cluster, "get pods -n team-a -o name").await;
    let seen = Mutex::new((cluster.audit_reader(), 0));
    let watch = plugin(&cluster, "tree web -w");
    let change = async {
        until_lists(&seen, 1, "the tree is read").await;
        let line = format!("delete {} -n team-a --wait=false", pod.trim());
        kubectl(&cluster, &line).await;
        until_lists(&seen, 2, "the tree is read again").await;
        plugin(&cluster, "delete web").await.success().unwrap();
    };
    let (output, ()) = tokio::join!(watch, change);
    let trees = output.stdout.matches("BundleDeployment/web ").count();
    assert!(trees > 1, "{output}");
    let names: std::collections::BTreeSet<&str> = output
        .stdout
        .split_whitespace()
        .filter(|word| word.starts_with("Pod/web-"))
        .collect();
    assert!(names.len() > 1, "{output}");
    assert!(
        output.stderr.contains("bundledeployment web was deleted"),
        "{output}"
    );
    output.success().unwrap();
}
