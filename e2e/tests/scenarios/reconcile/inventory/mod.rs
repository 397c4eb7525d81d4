//! Inventory of a BundleDeployment. Only the inventory determines which objects belong to the
//! BundleDeployment: labels of objects have no effect. `managers` tests drift by other field
//! managers.

use std::fmt::Write as _;

use e2e::{Cluster, wait};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::lifecycle::{killed_after, until_no_writes, writes};
use super::{
    CONFIG, LONG, apply, apply_with_kubeconfig, bundle_editor, bundle_of, condition, deployment,
    get, install_web, installed, kubectl, publish, soon, stage, staged, until, until_reason,
};
use crate::scenarios::pod::limits::anonymous_kib;

mod applyset;
mod custom_resources;
mod foreign_objects;

/// Labels of objects that `bundle-webhook` installs for BundleDeployment `web`.
const LABELS: &str = "core.rukpak.io/owner-kind=BundleDeployment core.rukpak.io/owner-name=web";

/// Creates a ConfigMap in namespace `mallory`, with the labels of `web` and a finalizer.
async fn foreign_labelled_object(cluster: &Cluster, web: &Value) {
    kubectl(cluster, "create namespace mallory").await;
    let labels = &web["metadata"]["labels"];
    let trap = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "trap", "namespace": "mallory", "labels": labels, "finalizers": ["example.com/hold"]},
        "data": {"whose": "mallory"},
    });
    apply(cluster, &trap).await;
}

async fn removed(cluster: &Cluster, name: &str) {
    wait::until_true(LONG, &format!("{name} is gone"), || async {
        let object = get(cluster, &format!("bundledeployment {name}")).await;
        if let Some(object) = &object {
            anyhow::bail!("{}", condition(object, "Ready"));
        }
        Ok(true)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_with_labels_of_the_webhook_survive_upgrade_and_removal() {
    let (cluster, _webhook) = stage().await;
    install_web(&cluster).await;
    let web = get(&cluster, "configmap web -n team-a").await.unwrap();
    foreign_labelled_object(&cluster, &web).await;
    let manifests = CONFIG.replace("name: web,", "name: web-2,");
    let two = publish(&cluster, "team/web:2", |f| bundle_of(f, "web", &manifests)).await;
    apply(&cluster, &deployment("web", &two, &json!({}))).await;
    installed(&cluster, "web").await;
    assert!(get(&cluster, "configmap web -n team-a").await.is_none());
    assert!(get(&cluster, "configmap web-2 -n team-a").await.is_some());
    let look = "configmap trap -n mallory";
    let trap = get(&cluster, look).await.unwrap();
    assert_eq!(trap["metadata"]["deletionTimestamp"], Value::Null);

    kubectl(&cluster, "delete bundledeployment web --wait=false").await;
    removed(&cluster, "web").await;
    assert!(get(&cluster, "configmap web-2 -n team-a").await.is_none());
    let trap = get(&cluster, look).await.unwrap();
    assert_eq!(trap["metadata"]["deletionTimestamp"], Value::Null);
    wait::until_true(LONG, "its inventory is gone", || async {
        let left = kubectl(&cluster, "get configmaps -n bundle-system-state -o name").await;
        Ok(!left.contains("inventory-"))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn object_without_labels_of_the_webhook_is_restored_and_stays_recorded() {
    let (cluster, mut webhook) = stage().await;
    install_web(&cluster).await;
    let unlabel = format!(
        "label configmap web -n team-a {}",
        LABELS
            .split(' ')
            .map(|label| format!("{}-", label.split('=').next().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(" ")
    );
    kubectl(&cluster, &unlabel).await;
    soon(
        &cluster,
        "configmap web -n team-a",
        "/metadata/labels/core.rukpak.io~1owner-name",
        "web",
    )
    .await;
    // The object has lost its labels, and its BundleDeployment is deleted while the webhook is
    // down. The webhook must remove the object nevertheless.
    webhook.kill().unwrap();
    kubectl(&cluster, &unlabel).await;
    delete_without_review(&cluster, &webhook, "web").await;
    webhook.start().await.unwrap();
    webhook.wait_for_admission().await.unwrap();
    admit_deletion(&cluster, "web").await;
    removed(&cluster, "web").await;
    assert!(get(&cluster, "configmap web -n team-a").await.is_none());
}

/// Runs the command that the condition of a BundleDeployment contains. The BundleDeployment was
/// deleted while admission was off.
async fn admit_deletion(cluster: &Cluster, name: &str) {
    let annotation = wait::until(LONG, "the deletion waits", || async {
        let object = get(cluster, &format!("bundledeployment {name}")).await;
        let object = object.unwrap_or_default();
        let reported = condition(&object, "Ready")["message"].to_string();
        let found = reported
            .split([' ', '`'])
            .find(|word| word.starts_with("core.rukpak.io/admit="));
        Ok(found.map(ToOwned::to_owned))
    })
    .await
    .unwrap();
    let line = format!("annotate bundledeployment {name} {annotation} --overwrite");
    kubectl(cluster, &line).await;
}

/// Deletes a BundleDeployment while the webhook is stopped and admission is off.
async fn delete_without_review(cluster: &Cluster, webhook: &e2e::Webhook, name: &str) {
    for line in [
        "delete validatingwebhookconfiguration bundle-webhook",
        "delete mutatingwebhookconfiguration bundle-webhook",
        &format!("delete bundledeployment {name} --wait=false"),
    ] {
        kubectl(cluster, line).await;
    }
    webhook.register().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn object_recreated_by_another_user_is_not_adopted() {
    let (cluster, mut webhook) = stage().await;
    install_web(&cluster).await;
    let web = get(&cluster, "configmap web -n team-a").await.unwrap();
    webhook.kill().unwrap();
    kubectl(&cluster, "delete configmap web -n team-a").await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "web", "namespace": "team-a", "labels": web["metadata"]["labels"]},
        "data": {"text": "of somebody else"},
    });
    apply(&cluster, &theirs).await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the condition says so", || async {
        let object = get(&cluster, "bundledeployment web")
            .await
            .unwrap_or_default();
        let found = condition(&object, "Ready");
        let printed = found["message"].as_str().unwrap_or_default();
        if found["status"] == "False" && printed.contains("ConfigMap/team-a/web") {
            return Ok(true);
        }
        anyhow::bail!("{found}")
    })
    .await
    .unwrap();
    let look = "configmap web -n team-a";
    let object = get(&cluster, look).await.unwrap();
    assert_eq!(object["data"]["text"], "of somebody else");
    kubectl(&cluster, "delete bundledeployment web --wait=false").await;
    removed(&cluster, "web").await;
    let object = get(&cluster, look).await.unwrap();
    assert_eq!(object["data"]["text"], "of somebody else");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_between_apply_and_record_loses_no_object() {
    let (cluster, mut webhook) = staged(Cluster::builder().audit(true)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let mut manifests = String::new();
    for n in 0..20 {
        write!(
            manifests,
            "---
apiVersion: v1
kind: ConfigMap
metadata: {{name: item-{n}, namespace: team-a}}
data: {{number: '{n}'}}
"
        )
        .unwrap();
    }
    let many = publish(&cluster, "team/many:1", |f| {
        bundle_of(f, "many", &manifests)
    })
    .await;
    for more in [4, 6, 9, 15, 24] {
        let name = format!("many-{more}");
        apply(&cluster, &deployment(&name, &many, &json!({}))).await;
        killed_after(&cluster, &mut webhook, more).await;
        if more % 2 == 0 {
            installed(&cluster, &name).await;
        }
        kubectl(
            &cluster,
            &format!("delete bundledeployment {name} --wait=false"),
        )
        .await;
        removed(&cluster, &name).await;
        let left = kubectl(&cluster, "get configmaps -n team-a -o name").await;
        assert!(!left.contains("item-"), "after {more}: {left}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_not_restored_in_a_recreated_namespace() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let ana = bundle_editor(&cluster, "ana", &[]).await;
    let give = "create rolebinding ana -n team-a --clusterrole admin --user ana@example.com";
    kubectl(&cluster, "create namespace team-a").await;
    kubectl(&cluster, give).await;
    apply_with_kubeconfig(&cluster, &deployment("web", &one, &json!({})), &ana).await;
    installed(&cluster, "web").await;

    kubectl(&cluster, "delete namespace team-a").await;
    kubectl(&cluster, "create namespace team-a").await;
    wait::until_true(LONG, "the condition names the missing rights", || async {
        let object = get(&cluster, "bundledeployment web")
            .await
            .unwrap_or_default();
        let printed = condition(&object, "Ready")["message"].to_string();
        assert!(
            get(&cluster, "configmap web -n team-a").await.is_none(),
            "it was made in the namespace of somebody else; {printed}"
        );
        if printed.contains("lacks permissions for this content") {
            return Ok(true);
        }
        anyhow::bail!("{printed}")
    })
    .await
    .unwrap();

    // When the requester has the permissions again, the object is installed again.
    kubectl(&cluster, give).await;
    wait::until_true(LONG, "it is installed again", || async {
        Ok(get(&cluster, "configmap web -n team-a").await.is_some())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_inventory_stops_removal_until_an_administrator_decides() {
    let (cluster, mut webhook) = stage().await;
    install_web(&cluster).await;
    webhook.kill().unwrap();
    kubectl(&cluster, "delete configmaps --all -n bundle-system-state").await;
    delete_without_review(&cluster, &webhook, "web").await;
    webhook.start().await.unwrap();
    let printed = until(&cluster, "bundledeployment web", "Ready", "False").await;
    let reported = until_reason(&cluster, "bundledeployment web", "Ready", "RemovalRefused").await;
    assert!(
        reported.contains("deletion.objects: Orphan"),
        "{printed} {reported}"
    );
    assert!(get(&cluster, "configmap web -n team-a").await.is_some());
    kubectl(
        &cluster,
        "patch bundledeployment web --type merge -p {\"spec\":{\"deletion\":{\"objects\":\"Orphan\"}}}",
    )
    .await;
    removed(&cluster, "web").await;
    assert!(get(&cluster, "configmap web -n team-a").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_in_foreign_namespaces_are_counted_and_not_named() {
    let (cluster, _webhook) = stage().await;
    let shop = publish(&cluster, "team/shop:1.0.0", |f| {
        e2e::bundles::shop(f, "1.0.0")
    })
    .await;
    // The missing objects are not restored, so the inventory keeps the uid of the first namespace.
    let report = json!({"drift": {"mode": "Report"}});
    apply(&cluster, &deployment("shop", &shop, &report)).await;
    installed(&cluster, "shop").await;
    kubectl(&cluster, "delete namespace shop").await;
    for namespace in ["mallory", "shop", "team-a"] {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
    }
    for (namespace, name) in [("mallory", "secret-project"), ("shop", "secret-plan")] {
        let theirs = json!({"apiVersion": "shop.example.com/v1", "kind": "Queue",
            "metadata": {"name": name, "namespace": namespace,
                "labels": {"core.rukpak.io/owner-kind": "BundleDeployment", "core.rukpak.io/owner-name": "shop"}},
            "spec": {"service": "x"}});
        apply(&cluster, &theirs).await;
    }
    let counted = "2 queues exist (2 in other namespaces)";
    let secrets = ["secret-project", "mallory", "secret-plan"];

    // The new content has no CRD, so the CRD is due for pruning.
    let web = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let more = json!({"drift": {"mode": "Report"}, "rollout": {"allowOtherPackage": true}});
    apply(&cluster, &deployment("shop", &web, &more)).await;
    let printed = wait::until(LONG, "a warning names the definition", || async {
        let object = get(&cluster, "bundledeployment shop").await;
        let status = object.unwrap_or_default()["status"].clone();
        let warnings = status["warnings"].to_string();
        if !warnings.contains("queues exist") {
            anyhow::bail!("{status}");
        }
        Ok(Some(status.to_string()))
    })
    .await
    .unwrap();
    assert!(printed.contains(counted), "{printed}");
    assert!(
        !secrets.iter().any(|name| printed.contains(name)),
        "{printed}"
    );
    installed(&cluster, "shop").await;

    kubectl(&cluster, "delete bundledeployment shop --wait=false").await;
    let printed = wait::until(LONG, "the deletion is refused", || async {
        let object = get(&cluster, "bundledeployment shop")
            .await
            .unwrap_or_default();
        let found = condition(&object, "Ready");
        if found["reason"] != "RemovalRefused" {
            anyhow::bail!("{found}");
        }
        Ok(Some(object["status"].to_string()))
    })
    .await
    .unwrap();
    assert!(printed.contains(counted), "{printed}");
    assert!(
        !secrets.iter().any(|name| printed.contains(name)),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_labelled_foreign_objects_cost_no_memory() {
    let (cluster, webhook) = stage().await;
    install_web(&cluster).await;
    let pid = webhook.pid().unwrap();
    let before = anonymous_kib(pid);
    kubectl(&cluster, "create namespace mallory").await;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client().await.unwrap(), "mallory");
    let name = |n: usize| format!("{}-{n:04}", "x".repeat(240));
    let made: Vec<_> = futures::stream::iter((0..5_000).map(|n| {
        let api = api.clone();
        let object: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": name(n), "labels": {
            "core.rukpak.io/owner-kind": "BundleDeployment", "core.rukpak.io/owner-name": "web"}}}))
            .unwrap();
        async move { api.create(&PostParams::default(), &object).await }
    }))
    .buffer_unordered(32)
    .collect()
    .await;
    assert!(made.iter().all(Result::is_ok));
    // After the correction of a later change, the watch has processed all earlier changes.
    kubectl(&cluster, "delete configmap web -n team-a").await;
    wait::until_true(LONG, "the ConfigMap is back", || async {
        Ok(get(&cluster, "configmap web -n team-a").await.is_some())
    })
    .await
    .unwrap();
    let after = anonymous_kib(pid);
    println!("{before} KiB before, {after} KiB after");
    assert!(
        after.saturating_sub(before) < 4 * 1024,
        "{before} KiB before, {after} KiB after"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_that_share_a_watch_find_their_objects_after_a_restart() {
    let (cluster, mut webhook) = staged(Cluster::builder().audit(true)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let names = ["web-1", "web-2", "web-3"];
    for name in names {
        let manifests = CONFIG.replace("name: web,", &format!("name: {name},"));
        let one = publish(&cluster, &format!("team/{name}:1"), |f| {
            bundle_of(f, name, &manifests)
        })
        .await;
        apply(&cluster, &deployment(name, &one, &json!({}))).await;
        installed(&cluster, name).await;
    }
    until_no_writes(&cluster).await;
    let before = writes(&cluster).unwrap();
    webhook.restart().await.unwrap();
    wait::until_true(LONG, "all are found", || async {
        let log = webhook.log()?;
        let found = log
            .matches("all objects are unchanged: nothing is applied")
            .count();
        Ok(found == names.len())
    })
    .await
    .unwrap();
    assert_eq!(writes(&cluster).unwrap(), before);
}
