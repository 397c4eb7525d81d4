//! Objects with times that Go parses and other parsers reject: one of these objects must not stop
//! the watch for its kind.

use e2e::{Cluster, Tool, wait};
use serde_json::json;

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, deployment, get, kubectl, publish, stage, until,
};

/// Latest time that Go writes. Parsers with a smaller range reject this time.
const LAST_TIME: &str = "9999-12-31T23:59:59Z";

/// Writes `managedFields` with an invalid time to the object `what`, and `data` if it is not empty.
async fn set_last_time(cluster: &Cluster, what: &str, data: &str) {
    let mut object = get(cluster, what).await.unwrap();
    object["metadata"]["managedFields"] = json!([{
        "manager": "x", "operation": "Update", "apiVersion": object["apiVersion"], "time": LAST_TIME,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:zz": {}}}},
    }]);
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.remove("resourceVersion");
    if !data.is_empty() {
        object["data"]["value"] = data.into();
    }
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let replaced = kubectl
        .args(["replace", "-f", "-"])
        .stdin(object.to_string());
    replaced.output().await.unwrap().success().unwrap();
    let stored = kubectl_times(cluster, what).await;
    assert!(stored.contains(LAST_TIME), "{stored}");
}

async fn kubectl_times(cluster: &Cluster, what: &str) -> String {
    let line = format!("get {what} -o jsonpath={{.metadata.managedFields[*].time}}");
    kubectl(cluster, &line).await
}

async fn install(cluster: &Cluster, name: &str) {
    let content = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web, namespace: {name}}}\ndata: {{value: installed}}\n"
    );
    let reference = publish(cluster, &format!("team/{name}:1"), |folder| {
        bundle_of(folder, name, &content)
    })
    .await;
    apply(cluster, &deployment(name, &reference, &json!({}))).await;
    until(
        cluster,
        &format!("bundledeployment {name}"),
        "Ready",
        "True",
    )
    .await;
}

async fn until_restored(cluster: &Cluster, namespace: &str) {
    let what = format!("configmap web -n {namespace}");
    wait::until_true(LONG, &format!("{what} is restored"), || async {
        let object = get(cluster, &what).await;
        Ok(object.is_some_and(|object| object["data"]["value"] == "installed"))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn installs_and_restores_next_to_labelled_objects_whose_times_do_not_parse() {
    let (cluster, mut webhook) = stage().await;
    let namespace = "unreadable-next";
    kubectl(&cluster, &format!("create namespace {namespace}")).await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "foreign", "namespace": namespace, "labels": {"core.rukpak.io/owner-kind": "BundleDeployment"}},
    });
    apply(&cluster, &foreign).await;
    let foreign = format!("configmap foreign -n {namespace}");
    set_last_time(&cluster, &foreign, "").await;
    install(&cluster, namespace).await;
    webhook.restart().await.unwrap();
    kubectl(&cluster, &format!("delete configmap web -n {namespace}")).await;
    until_restored(&cluster, namespace).await;
    kubectl(&cluster, &format!("delete {foreign}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restores_and_removes_installed_objects_whose_times_do_not_parse() {
    let (cluster, _webhook) = stage().await;
    let namespace = "unreadable-own";
    kubectl(&cluster, &format!("create namespace {namespace}")).await;
    install(&cluster, namespace).await;
    let web = format!("configmap web -n {namespace}");
    set_last_time(&cluster, &web, "changed").await;
    until_restored(&cluster, namespace).await;
    set_last_time(&cluster, &web, "changed").await;
    kubectl(
        &cluster,
        &format!("delete bundledeployment {namespace} --timeout=60s"),
    )
    .await;
    assert_eq!(get(&cluster, &web).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_starts_while_the_times_of_a_deployment_do_not_parse() {
    let (cluster, mut webhook) = stage().await;
    let namespace = "unreadable-start";
    kubectl(&cluster, &format!("create namespace {namespace}")).await;
    install(&cluster, namespace).await;
    set_last_time(&cluster, &format!("bundledeployment {namespace}"), "").await;
    webhook.restart().await.unwrap();
    kubectl(&cluster, &format!("delete configmap web -n {namespace}")).await;
    until_restored(&cluster, namespace).await;
    kubectl(
        &cluster,
        &format!("delete bundledeployment {namespace} --timeout=60s"),
    )
    .await;
}
