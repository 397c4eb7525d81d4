//! Faults in the environment of the process: missing permissions on the Lease and the Secrets, and
//! a cache folder that cannot be written.

use std::time::Duration;

use e2e::host::plain_http;
use e2e::webhook::{NAMESPACE, STATE_NAMESPACE};
use e2e::{Cluster, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{apply, apply_as, condition, get, try_get, try_kubectl};

const SOON: Duration = Duration::from_secs(60);
const POD: &str = "system:serviceaccount:bundle-system:bundle-webhook";

/// Returns the Role of the pod in this namespace, in a form that can be applied again.
async fn role(cluster: &Cluster, namespace: &str) -> Value {
    let role = get(cluster, &format!("role bundle-webhook -n {namespace}")).await;
    let mut role = role.unwrap();
    let labels = role["metadata"]["labels"].take();
    role["metadata"] = json!({"name": "bundle-webhook", "namespace": namespace, "labels": labels});
    role
}

/// Waits until the authorizer of the API server denies this request of the pod.
async fn until_denied(cluster: &Cluster, request: &str) {
    let line = format!("auth can-i {request} --as {POD}");
    wait::until_true(SOON, &format!("the pod cannot {request}"), || async {
        Ok(try_kubectl(cluster, &line).await.stdout.trim() == "no")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_without_a_permission_is_not_ready_names_the_permission_and_retries() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let cluster = &cluster;
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let health = webhook.health_address();
    let log = format!("bundle-webhook-{}.log", webhook.address().port());
    let log = cluster.logs().join(log);
    for (namespace, resource, object, group, check) in [
        (
            NAMESPACE,
            "leases",
            "leases/bundle-webhook",
            "coordination.k8s.io",
            "lease",
        ),
        (
            STATE_NAMESPACE,
            "secrets",
            "secrets/bundle-webhook-stamp",
            "",
            "certificate",
        ),
    ] {
        webhook.stop().await.unwrap();
        let complete = role(cluster, namespace).await;
        let mut reduced = complete.clone();
        let rules = reduced["rules"].as_array_mut().unwrap();
        rules.retain(|rule| rule["resources"] != json!([resource]));
        apply_as(cluster, &reduced, None).await.success().unwrap();
        until_denied(cluster, &format!("get {object} -n {namespace}")).await;

        let written = fs_err::read_to_string(&log).unwrap().len();
        let message = format!(
            "cannot get resource \"{resource}\" in API group \"{group}\" in the namespace \"{namespace}\""
        );
        let repair = async {
            wait::until_true(SOON, "the log has the missing permission", || async {
                let page = plain_http::get(&format!("http://{health}/readyz")).await?;
                let lines = fs_err::read_to_string(&log)?.split_off(written);
                anyhow::ensure!(page.1.contains(&format!("[-]{check} waiting")), "{page:?}");
                // Each line of the log is a JSON object, in which quotes are escaped.
                let has_message = lines.replace("\\\"", "\"").contains(&message);
                anyhow::ensure!(page.0 == 503 && has_message, "{page:?}\n{lines}");
                Ok(true)
            })
            .await
            .unwrap();
            apply_as(cluster, &complete, None).await.success().unwrap();
        };
        let (started, ()) = tokio::join!(webhook.start(), repair);
        started.unwrap();
    }
    webhook.wait_for_admission().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_without_a_writable_cache_folder_reviews_and_reports_the_folder() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let cluster = &cluster;
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    webhook.stop().await.unwrap();
    // Tests may run as root, and root can write to a read-only folder. Therefore a file replaces
    // the folder: no user can create a folder in a file.
    let cache = webhook.cache_folder().to_owned();
    if cache.exists() {
        fs_err::remove_dir_all(&cache).unwrap();
    }
    fs_err::write(&cache, "").unwrap();
    webhook.start().await.unwrap();
    webhook.wait_for_admission().await.unwrap();

    let folder = cluster.folder().join("data").join("environment");
    bundles::greeting(&folder, "1.0.0", None).unwrap();
    let reference = cluster.registry(0).unwrap().reference("environment:1.0.0");
    let line = format!("push {} {reference}", folder.display());
    let pushed = cluster.kubectl_bundle(line.split(' ')).await.unwrap();
    pushed.success().unwrap();
    let bundle = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle", "metadata": {"name": "environment"},
        "spec": {
            "provisionerClassName": "core-rukpak-io-plain",
            "source": {"type": "image", "image": {"ref": reference}},
        },
    });
    apply(cluster, &bundle).await;
    wait::until_true(SOON, "the Bundle reports the cache folder", || async {
        let found = try_get(cluster, "bundle environment").await?;
        let found = found.unwrap_or_default();
        let unpacked = condition(&found, "Unpacked");
        let message = unpacked["message"].as_str().unwrap_or_default();
        anyhow::ensure!(message.contains("cannot be stored in the cache"), "{found}");
        Ok(unpacked["status"] == "False")
    })
    .await
    .unwrap();
    assert!(webhook.is_running());

    fs_err::remove_file(&cache).unwrap();
    webhook.restart().await.unwrap();
    wait::until_true(SOON, "the Bundle is unpacked", || async {
        let found = try_get(cluster, "bundle environment").await?;
        let phase = found.unwrap_or_default()["status"]["phase"].take();
        Ok(phase == "Unpacked")
    })
    .await
    .unwrap();
}
