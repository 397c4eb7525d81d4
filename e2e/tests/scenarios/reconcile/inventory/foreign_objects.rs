//! Objects that must not be changed: objects of other owners, custom resources of users, and drift
//! that is only reported.

use std::time::{Duration, Instant};

use e2e::{bundles, wait};
use serde_json::json;

use crate::scenarios::reconcile::{
    CONFIG, LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, soon, stage,
    until, until_reason,
};

#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_and_custom_resources_are_not_changed() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    kubectl(&cluster, "create namespace greeting").await;
    apply(&cluster, &deployment("greeting", &one, &json!({}))).await;
    let printed = until(&cluster, "bundledeployment greeting", "Installed", "False").await;
    assert!(
        printed.contains("Namespace/greeting exists and no bundle manages it; "),
        "{printed}"
    );
    assert!(
        get(&cluster, "configmap greeting -n greeting")
            .await
            .is_none()
    );
    apply(
        &cluster,
        &deployment("greeting", &one, &json!({"collision": "Adopt"})),
    )
    .await;
    installed(&cluster, "greeting").await;
    apply(
        &cluster,
        &deployment("again", &one, &json!({"collision": "Adopt"})),
    )
    .await;
    let printed = until(&cluster, "bundledeployment again", "Installed", "False").await;
    assert!(
        printed.contains("ConfigMap/greeting/greeting belongs to BundleDeployment greeting"),
        "{printed}"
    );

    let shop = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    apply(&cluster, &deployment("shop", &shop, &json!({}))).await;
    installed(&cluster, "shop").await;
    let own = json!({"apiVersion": "shop.example.com/v1", "kind": "Feature", "metadata": {"name": "of-ana"}, "spec": {"enabled": true}});
    apply(&cluster, &own).await;
    kubectl(&cluster, "delete bundledeployment shop --wait=false").await;
    let printed = until_reason(&cluster, "bundledeployment shop", "Ready", "RemovalRefused").await;
    assert!(printed.contains("of-ana"), "{printed}");
    assert!(get(&cluster, "deployment basket -n shop").await.is_some());
    kubectl(&cluster, "delete feature of-ana").await;
    wait::until_true(LONG, "the deletion goes on", || async {
        Ok(get(&cluster, "bundledeployment shop").await.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_only_reported_in_report_mode() {
    let (cluster, mut webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let report = json!({"drift": {"mode": "Report"}});
    apply(&cluster, &deployment("web", &one, &report)).await;
    installed(&cluster, "web").await;
    let patch = "patch configmap web -n team-a --type merge -p {\"data\":{\"text\":\"changed\"}}";
    kubectl(&cluster, patch).await;
    let printed = until(&cluster, "bundledeployment web", "Drifted", "True").await;
    assert!(printed.contains("ConfigMap/team-a/web"), "{printed}");
    // After a restart, the drift is still reported and not restored.
    webhook.restart().await.unwrap();
    let began = Instant::now();
    wait::until_true(LONG, "it is reported after the restart", || async {
        let object = get(&cluster, "bundledeployment web")
            .await
            .unwrap_or_default();
        Ok(began.elapsed() > Duration::from_secs(2)
            && object["status"]["drift"][0]["object"] == "ConfigMap/team-a/web")
    })
    .await
    .unwrap();
    let object = get(&cluster, "configmap web -n team-a").await.unwrap();
    assert_eq!(object["data"]["text"], "changed");
    apply(&cluster, &deployment("web", &one, &json!({"paused": true}))).await;
    until(&cluster, "bundledeployment web", "Drifted", "True").await;
    apply(
        &cluster,
        &deployment("web", &one, &json!({"paused": false})),
    )
    .await;
    soon(&cluster, "configmap web -n team-a", "/data/text", "hello").await;
    until(&cluster, "bundledeployment web", "Drifted", "False").await;

    // Drift in ignored fields is neither reported nor restored.
    let ignore = json!({"drift": {"ignore": [{"kind": "ConfigMap", "name": "web", "fields": ["/data/text"]}]}});
    apply(&cluster, &deployment("web", &one, &ignore)).await;
    installed(&cluster, "web").await;
    kubectl(&cluster, patch).await;
    kubectl(
        &cluster,
        "label configmap web -n team-a core.rukpak.io/owner-name-",
    )
    .await;
    soon(
        &cluster,
        "configmap web -n team-a",
        "/metadata/labels/core.rukpak.io~1owner-name",
        "web",
    )
    .await;
    let object = get(&cluster, "configmap web -n team-a").await.unwrap();
    assert_eq!(object["data"]["text"], "changed");
}
