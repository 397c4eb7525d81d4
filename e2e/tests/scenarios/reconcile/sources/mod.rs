//! Content that changes, disappears, or is requested while the webhook is down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use e2e::{bundles, wait};
use serde_json::json;
use tokio::net::TcpListener;

use crate::scenarios::content::unchecked::push_unchecked;

use super::{
    LONG, apply, condition, deployment, get, install_web, installed, kubectl, publish, stage, until,
};

mod config_maps;
pub(in crate::scenarios) mod git;
pub(in crate::scenarios) mod http;
mod ignored_fields;
mod insecure;
mod pull_secrets;
mod retries;
mod target;

#[tokio::test(flavor = "multi_thread")]
async fn moved_tag_is_reported_and_not_followed() {
    let (cluster, mut webhook) = stage().await;
    publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    let tag = cluster.registry(0).unwrap().reference("team/greeting:1");
    apply(&cluster, &deployment("greeting", &tag, &json!({}))).await;
    installed(&cluster, "greeting").await;
    let bundle = kubectl(&cluster, "get bundles -l app=greeting -o name").await;
    let bundle = bundle
        .trim()
        .trim_start_matches("bundle.core.rukpak.io/")
        .to_owned();
    let first = get(&cluster, &format!("bundle {bundle}")).await.unwrap();
    publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "2.0.0", None)
    })
    .await;
    let printed = until(&cluster, &format!("bundle {bundle}"), "SourceMoved", "True").await;
    let digest = first["status"]["content"]["digest"].as_str().unwrap();
    assert!(printed.contains(digest), "{printed}");
    let now = get(&cluster, &format!("bundle {bundle}")).await.unwrap();
    assert_eq!(now["status"]["content"], first["status"]["content"]);
    let text = get(&cluster, "configmap greeting -n greeting")
        .await
        .unwrap();
    assert_eq!(text["data"]["text"], "Hello from 1.0.0");

    // After the loss of the cache and a restart, the pod installs the recorded content again, and
    // not the new content of the tag.
    webhook.kill().unwrap();
    let cache = format!("webhook-{}", webhook.address().port());
    fs_err::remove_dir_all(cluster.folder().join("data").join(cache)).unwrap();
    kubectl(&cluster, "delete configmap greeting -n greeting").await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the ConfigMap is back", || async {
        let text = get(&cluster, "configmap greeting -n greeting").await;
        Ok(text.is_some_and(|text| text["data"]["text"] == "Hello from 1.0.0"))
    })
    .await
    .unwrap();

    publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    until(
        &cluster,
        &format!("bundle {bundle}"),
        "SourceMoved",
        "False",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_written_while_admission_was_off_are_not_installed() {
    let (cluster, mut webhook) = stage().await;
    let one = publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    webhook.stop().await.unwrap();
    kubectl(
        &cluster,
        "delete validatingwebhookconfiguration bundle-webhook",
    )
    .await;
    kubectl(
        &cluster,
        "delete mutatingwebhookconfiguration bundle-webhook",
    )
    .await;
    apply(&cluster, &deployment("greeting", &one, &json!({}))).await;
    webhook.register().await.unwrap();
    webhook.start().await.unwrap();
    let printed = until(&cluster, "bundledeployment greeting", "Installed", "False").await;
    assert!(
        printed.contains("written while admission was disabled"),
        "{printed}"
    );
    assert!(get(&cluster, "namespace greeting").await.is_none());
    // The scenario executes the next step that the message names.
    webhook.wait_for_admission().await.unwrap();
    let (_, token) = printed.split_once("core.rukpak.io/admit=").unwrap();
    let token = &token[..16];
    kubectl(
        &cluster,
        &format!("annotate bundledeployment greeting core.rukpak.io/admit={token} --overwrite"),
    )
    .await;
    installed(&cluster, "greeting").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_content_stays_while_new_content_is_unavailable() {
    let (cluster, mut webhook) = stage().await;
    let one = install_web(&cluster).await;
    let before = get(&cluster, "bundledeployment web").await.unwrap();
    let missing = cluster.registry(0).unwrap().reference("team/web:not-there");
    apply(&cluster, &deployment("web", &missing, &json!({}))).await;
    wait::until_true(LONG, "the failure is reported", || async {
        let object = get(&cluster, "bundledeployment web")
            .await
            .unwrap_or_default();
        let printed = condition(&object, "HasValidBundle")["message"].clone();
        Ok(printed
            .as_str()
            .is_some_and(|printed| printed.starts_with("Failed to unpack the web-")))
    })
    .await
    .unwrap();
    for restart in [false, true] {
        if restart {
            webhook.restart().await.unwrap();
        }
        kubectl(&cluster, "delete configmap web -n team-a").await;
        wait::until_true(LONG, "the ConfigMap is back", || async {
            Ok(get(&cluster, "configmap web -n team-a").await.is_some())
        })
        .await
        .unwrap();
    }
    let now = get(&cluster, "bundledeployment web").await.unwrap();
    assert_eq!(
        now["status"]["activeBundle"],
        before["status"]["activeBundle"]
    );
    assert_eq!(condition(&now, "Installed")["status"], "True");
    assert_eq!(condition(&now, "Ready")["status"], "False");
    // The spec refers to the installed content again, so the BundleDeployment becomes ready.
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;
    until(&cluster, "bundledeployment web", "Ready", "True").await;
}

/// Starts a registry that closes each connection after 3 s without a response. A reconcile waits
/// for a shorter time. Returns the address of the registry and the number of connections so far.
async fn closing_registry() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                drop(connection);
            });
        }
    });
    (address, connections)
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_stays_failing_while_the_next_attempt_is_under_way() {
    let (cluster, _webhook) = stage().await;
    let (address, connections) = closing_registry().await;
    let digest = "0".repeat(64);
    let reference = format!("{address}/team/closing@sha256:{digest}");
    let bundle = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": "source-closing"},
        "spec": {
            "provisionerClassName": "core-rukpak-io-plain",
            "source": {"type": "image", "image": {"ref": reference}},
        },
    });
    apply(&cluster, &bundle).await;
    let phase = || async {
        let bundle = get(&cluster, "bundle source-closing").await;
        let phase = bundle.map(|bundle| bundle["status"]["phase"].clone());
        phase.and_then(|phase| phase.as_str().map(ToOwned::to_owned))
    };
    wait::until_true(LONG, "the first attempt fails", || async {
        Ok(phase().await.as_deref() == Some("Failing"))
    })
    .await
    .unwrap();
    let first = connections.load(Ordering::SeqCst);
    wait::until_true(LONG, "another attempt has ended", || async {
        assert_eq!(phase().await.unwrap(), "Failing");
        Ok(connections.load(Ordering::SeqCst) >= 2 * first)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_content_of_another_tool_with_owner_references() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "8d3c3f9e-1111-4222-8333-444455556666"});
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "owned", "namespace": "team-a", "ownerReferences": [owner]},
        "data": {"text": "hello"},
    });
    let reference = push_unchecked(&cluster, "source-owned", &object).await;
    let written = deployment("source-owned", &reference, &json!({}));
    apply(&cluster, &written).await;
    wait::until_true(LONG, "the field is named", || async {
        let reported = until(&cluster, "bundledeployment source-owned", "Ready", "False").await;
        if reported.contains("metadata.ownerReferences") {
            return Ok(true);
        }
        anyhow::bail!("{reported}")
    })
    .await
    .unwrap();
    assert_eq!(get(&cluster, "configmap owned -n team-a").await, None);
}
