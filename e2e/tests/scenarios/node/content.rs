//! The verbs `run` and `content` connect to the leader through a port-forward of the API server.

use e2e::webhook::NAMESPACE;

use super::super::objects::kubectl;
use super::{installed, plugin};

#[tokio::test(flavor = "multi_thread")]
async fn node_content_is_sent_and_received_through_the_api_server() {
    let node = &installed().await;
    let cluster = &node.cluster;
    // The administrator has a client certificate, and the pod accepts only tokens.
    kubectl(cluster, "create serviceaccount runner -n default").await;
    for role in [
        "bundle-uploader",
        "bundle-reader",
        "bundle-editor",
        "bundle-user",
        "edit",
    ] {
        let binding = format!("create clusterrolebinding runner-{role} --clusterrole={role}");
        kubectl(
            cluster,
            &format!("{binding} --serviceaccount=default:runner"),
        )
        .await;
    }
    let role = "create role runner-impersonator -n default --verb=impersonate --resource=serviceaccounts --resource-name=runner";
    kubectl(cluster, role).await;
    let binding = "create rolebinding runner-impersonator -n default --role=runner-impersonator";
    let pod = format!("--serviceaccount={NAMESPACE}:bundle-webhook");
    kubectl(cluster, &format!("{binding} {pod}")).await;

    let folder = cluster.folder().join("data").join("node-run");
    fs_err::create_dir_all(folder.join("manifests")).unwrap();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: node-run, namespace: default}\ndata: {text: hello}\n";
    fs_err::write(folder.join("manifests/all.yaml"), object).unwrap();
    let account = "--as-service-account default/runner";
    let line = format!("run node-run {} --wait {account}", folder.display());
    let told = plugin(node, &line).await;
    assert_eq!(told, "bundledeployment.core.rukpak.io/node-run created");
    let text = "get configmap node-run -n default -o jsonpath={.data.text}";
    assert_eq!(kubectl(cluster, text).await, "hello");
    let told = plugin(node, &line).await;
    assert_eq!(told, "bundledeployment.core.rukpak.io/node-run unchanged");

    let bundle = "get bundledeployment node-run -o jsonpath={.status.activeBundle}";
    let bundle = kubectl(cluster, bundle).await;
    let files = plugin(node, &format!("content {bundle} {account}")).await;
    assert_eq!(files, "bundle.yaml\nmanifests/all.yaml");
    kubectl(cluster, "delete bundledeployment node-run").await;
}
