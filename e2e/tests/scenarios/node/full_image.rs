//! The external programs of the full image. The pods run git, ssh and helm as in the chart: without
//! Linux capabilities, with a read-only root file system, and within the memory limit of the
//! container. Covers E50 of `docs/reference/rukpak-scenarios.md`.

use e2e::release::NAMESPACE;
use serde_json::{Value, json};

use super::super::objects::{apply, get, kubectl, until};
use super::super::reconcile::sources::git::Repository;
use super::{installed, plugin};

/// Memory limit of pods that render charts.
const MEMORY: &str = "512Mi";
/// Template of a chart: a Deployment whose container has the image `IMAGE`.
const WORKLOAD: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: 'IMAGE'}]
";

fn deployment(name: &str, class: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class, "targetNamespace": "default", "template": {"spec": {
            "provisionerClassName": class, "source": source,
        }}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn node_full_image_installs_a_git_repository_and_a_chart() {
    let node = &installed().await;
    let cluster = &node.cluster;
    let mut values = node.values.clone();
    values["resources"] = json!({"limits": {"memory": MEMORY}});
    node.release("upgrade", &values).await.unwrap();

    let class = "node-git";
    let registry = cluster.registry(0).unwrap();
    let repository = Repository::start_on(cluster, class, registry.ip()).await;
    repository.bundle(class, "from-git");
    repository.push(false).await;
    repository.allow(cluster, class).await;
    let source = repository.source(class, class, &json!({"branch": "main"}));
    apply(cluster, &deployment(class, class, &source)).await;
    until(
        cluster,
        &format!("bundledeployment {class}"),
        "Installed",
        "True",
    )
    .await;
    let text = get(cluster, &format!("configmap {class} -n default")).await;
    assert_eq!(text.unwrap()["data"]["text"], "from-git");

    let name = "node-chart";
    let folder = cluster.folder().join("data").join(name);
    fs_err::create_dir_all(folder.join("templates")).unwrap();
    let chart = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    fs_err::write(folder.join("Chart.yaml"), chart).unwrap();
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {release: {{ .Release.Namespace }}}\n";
    fs_err::write(folder.join("templates/all.yaml"), template).unwrap();
    let workload = WORKLOAD.replace("IMAGE", &registry.reference("busybox:1"));
    fs_err::write(folder.join("templates/workload.yaml"), workload).unwrap();
    let reference = registry.reference(&format!("{name}:1.0.0"));
    let pushed = plugin(node, &format!("push {} {reference}", folder.display())).await;
    let source = json!({"type": "image", "image": {"ref": pushed.lines().last().unwrap()}});
    apply(cluster, &deployment(name, "core-rukpak-io-helm", &source)).await;
    until(
        cluster,
        &format!("bundledeployment {name}"),
        "Installed",
        "True",
    )
    .await;
    let object = get(cluster, &format!("configmap {name} -n default")).await;
    assert_eq!(object.unwrap()["data"]["release"], "default");
    let line = format!("wait deployment {name} -n default --for=condition=Available --timeout=90s");
    kubectl(cluster, &line).await;

    kubectl(cluster, &format!("delete bundledeployment {class} {name}")).await;
    kubectl(cluster, &format!("delete secret {class} -n {NAMESPACE}")).await;
    node.release("upgrade", &node.values).await.unwrap();
}
