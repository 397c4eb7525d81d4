//! Lifecycle of a bundle: installation in order, drift correction, upgrade and removal. In some
//! scenarios, the webhook is killed during these steps.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use e2e::cluster::AuditReader;
use e2e::{Cluster, bundles, wait};
use serde_json::{Value, json};

use super::{
    CONFIG, LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, soon, stage,
    staged, until, until_reason,
};

mod crd_upgrades;
mod failed_upgrades;
mod faults;
mod invalid_objects;
mod jobs;
mod package_rules;
mod paused;
mod reinstall;
mod removal;
mod rollback;
mod rollout;
mod upgrades;
mod verbs;

#[tokio::test(flavor = "multi_thread")]
async fn shop_is_installed_restored_upgraded_and_removed() {
    let (cluster, webhook) = stage().await;
    let one = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    let two = publish(&cluster, "team/shop:2.0.0", |f| bundles::shop(f, "2.0.0")).await;
    apply(&cluster, &deployment("shop", &one, &json!({}))).await;
    installed(&cluster, "shop").await;
    let object = get(&cluster, "bundledeployment shop").await.unwrap();
    let objects = object["status"]["installed"]["objects"].as_u64().unwrap();
    assert!(objects >= 200, "{object}");
    assert!(get(&cluster, "queue -n shop basket-events").await.is_some());

    // Another user changes an object.
    kubectl(
        &cluster,
        "patch configmap basket -n shop --type merge -p {\"data\":{\"LOG_LEVEL\":\"debug\"}}",
    )
    .await;
    soon(
        &cluster,
        "configmap basket -n shop",
        "/data/LOG_LEVEL",
        "info",
    )
    .await;
    kubectl(&cluster, "delete configmap basket -n shop").await;
    soon(
        &cluster,
        "configmap basket -n shop",
        "/data/LOG_LEVEL",
        "info",
    )
    .await;
    kubectl(
        &cluster,
        "label configmap basket -n shop core.rukpak.io/owner-name-",
    )
    .await;
    soon(
        &cluster,
        "configmap basket -n shop",
        "/metadata/labels/core.rukpak.io~1owner-name",
        "shop",
    )
    .await;

    // The reconciler keeps fields that the content does not set.
    kubectl(
        &cluster,
        "annotate deployment basket -n shop team.example.com/on-call=ana",
    )
    .await;
    kubectl(&cluster, "rollout restart deployment basket -n shop").await;
    kubectl(&cluster, "scale deployment basket -n shop --replicas 5").await;
    wait::until_true(LONG, "replicas are restored", || async {
        let object = get(&cluster, "deployment basket -n shop").await;
        Ok(object.is_some_and(|object| object["spec"]["replicas"] == 2))
    })
    .await
    .unwrap();
    let kept = get(&cluster, "deployment basket -n shop").await.unwrap();
    assert_eq!(
        kept["metadata"]["annotations"]["team.example.com/on-call"],
        "ana"
    );
    let template = &kept["spec"]["template"]["metadata"]["annotations"];
    assert!(
        template["kubectl.kubernetes.io/restartedAt"].is_string(),
        "{template}"
    );

    // The BundleDeployment is upgraded to a new version.
    apply(&cluster, &deployment("shop", &two, &json!({}))).await;
    installed(&cluster, "shop").await;
    let object = get(&cluster, "bundledeployment shop").await.unwrap();
    assert_eq!(object["status"]["installed"]["version"], "2.0.0");
    assert_eq!(object["status"]["revisions"][1]["state"], "Superseded");
    assert!(get(&cluster, "deployment wishlist -n shop").await.is_some());
    for dropped in ["deployment", "configmap", "secret", "serviceaccount"] {
        assert!(
            get(&cluster, &format!("{dropped} coupons -n shop"))
                .await
                .is_none(),
            "{dropped} coupons is still there\n{}",
            webhook.log().unwrap()
        );
    }

    // The BundleDeployment is deleted, so all objects are removed.
    kubectl(&cluster, "delete bundledeployment shop --timeout 80s").await;
    assert!(get(&cluster, "namespace shop").await.is_none());
    assert!(get(&cluster, "crd queues.shop.example.com").await.is_none());
    assert!(get(&cluster, "clusterrole shop-features").await.is_none());
}

/// Returns `true` for a request of the webhook that changed an object.
fn is_write(event: &Value) -> bool {
    let verb = event["verb"].as_str().unwrap_or_default();
    let user = event["user"]["username"].as_str().unwrap_or_default();
    let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
    user.ends_with(":bundle-webhook")
        && matches!(verb, "create" | "patch" | "update" | "delete")
        && !matches!(
            resource,
            "leases" | "subjectaccessreviews" | "selfsubjectaccessreviews"
        )
}

/// Returns the number of requests of the webhook that changed an object.
pub(super) fn writes(cluster: &Cluster) -> anyhow::Result<usize> {
    let events = cluster.audit()?;
    Ok(events.iter().filter(|event| is_write(event)).count())
}

/// Counts the writes of the webhook since this value was created.
struct WriteCounter {
    audit: AuditReader,
    count: usize,
}

impl WriteCounter {
    fn new(cluster: &Cluster) -> Self {
        let mut audit = cluster.audit_reader();
        audit.skip().unwrap();
        Self { audit, count: 0 }
    }

    /// Returns the number of writes up to now.
    fn count(&mut self) -> anyhow::Result<usize> {
        let events = self.audit.read()?;
        self.count += events.iter().filter(|event| is_write(event)).count();
        Ok(self.count)
    }
}

/// Waits until the webhook has written nothing for six seconds.
pub(super) async fn until_no_writes(cluster: &Cluster) {
    let last = Mutex::new((WriteCounter::new(cluster), 0, Instant::now()));
    wait::until_true(LONG, "it comes to rest", || async {
        let mut last = last.lock().unwrap();
        let (counter, count, changed) = &mut *last;
        let now = counter.count()?;
        if *count != now {
            (*count, *changed) = (now, Instant::now());
        }
        Ok(changed.elapsed() > Duration::from_secs(6))
    })
    .await
    .unwrap();
}

/// Kills the webhook after `more` further writes, and starts it again.
pub(super) async fn killed_after(cluster: &Cluster, webhook: &mut e2e::Webhook, more: usize) {
    let counter = Mutex::new(WriteCounter::new(cluster));
    wait::until_true(LONG, "the webhook has got on", || async {
        Ok(counter.lock().unwrap().count()? >= more)
    })
    .await
    .unwrap();
    webhook.kill().unwrap();
    webhook.start().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_killed_at_any_step_reaches_the_same_state() {
    let (cluster, mut webhook) = staged(Cluster::builder().audit(true)).await;
    let one = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    apply(&cluster, &deployment("shop", &one, &json!({}))).await;
    for more in [1, 4, 8] {
        killed_after(&cluster, &mut webhook, more).await;
    }
    installed(&cluster, "shop").await;

    // The webhook restores the objects that changed during the downtime, and does not apply
    // unchanged objects again.
    webhook.kill().unwrap();
    kubectl(&cluster, "delete secret basket -n shop").await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the Secret is back", || async {
        Ok(get(&cluster, "secret basket -n shop").await.is_some())
    })
    .await
    .unwrap();
    installed(&cluster, "shop").await;
    until_no_writes(&cluster).await;
    let before = get(&cluster, "bundledeployment shop").await.unwrap();
    webhook.restart().await.unwrap();
    wait::until_true(LONG, "nothing is applied", || async {
        Ok(webhook
            .log()?
            .contains("all objects are unchanged: nothing is applied"))
    })
    .await
    .unwrap();
    let after = get(&cluster, "bundledeployment shop").await.unwrap();
    assert_eq!(
        before["status"]["installed"]["fieldsDigest"],
        after["status"]["installed"]["fieldsDigest"]
    );

    // The webhook is killed during an upgrade.
    let two = publish(&cluster, "team/shop:2.0.0", |f| bundles::shop(f, "2.0.0")).await;
    apply(&cluster, &deployment("shop", &two, &json!({}))).await;
    for more in [3, 6] {
        killed_after(&cluster, &mut webhook, more).await;
    }
    installed(&cluster, "shop").await;
    assert!(get(&cluster, "deployment wishlist -n shop").await.is_some());
    assert!(get(&cluster, "deployment coupons -n shop").await.is_none());

    // The webhook is also killed during the removal.
    kubectl(&cluster, "delete bundledeployment shop --wait=false").await;
    killed_after(&cluster, &mut webhook, 3).await;
    wait::until_true(LONG, "all is gone", || async {
        Ok(get(&cluster, "bundledeployment shop").await.is_none()
            && get(&cluster, "crd queues.shop.example.com").await.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_for_a_crd_that_does_not_exist_yet() {
    let (cluster, _webhook) = stage().await;
    let manifests = "apiVersion: shop.example.com/v1
kind: Feature
metadata: {name: early}
spec: {enabled: true}
";
    let early = publish(&cluster, "team/early:1", |f| {
        bundle_of(f, "early", manifests)
    })
    .await;
    let shop = publish(&cluster, "team/shop:1.0.0", |f| bundles::shop(f, "1.0.0")).await;
    apply(&cluster, &deployment("early", &early, &json!({}))).await;
    let what = "bundledeployment early";
    let printed = until_reason(&cluster, what, "Installed", "InstallFailed").await;
    assert_eq!(
        printed,
        r#"required resource not found: no matches for kind "Feature" in version "shop.example.com/v1""#
    );
    apply(&cluster, &deployment("shop", &shop, &json!({}))).await;
    installed(&cluster, "shop").await;
    installed(&cluster, "early").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_cannot_be_restored_delays_no_other() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let content = format!(
        "{CONFIG}---\n{}",
        CONFIG.replace("name: web", "name: other")
    );
    let account = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: team-a}\nspec: {ports: [{port: 80}]}\n";
    let content = format!("{content}---\n{account}");
    let reference = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", &content)).await;
    apply(&cluster, &deployment("web", &reference, &json!({}))).await;
    until(&cluster, "bundledeployment web", "Ready", "True").await;
    // From now on the API server rejects every change of this object.
    kubectl(
        &cluster,
        "patch configmap web -n team-a --type=merge --patch={\"data\":{\"text\":\"mine\"},\"immutable\":true}",
    )
    .await;
    let printed = until(&cluster, "bundledeployment web", "Ready", "False").await;
    assert!(printed.contains("ConfigMap/team-a/web"), "{printed}");
    // An object of the same phase and an object of a later phase are restored.
    for object in ["configmap other", "service web"] {
        kubectl(&cluster, &format!("delete {object} -n team-a")).await;
        wait::until_true(LONG, &format!("{object} is back"), || async {
            Ok(get(&cluster, &format!("{object} -n team-a"))
                .await
                .is_some())
        })
        .await
        .unwrap();
    }
    let web = get(&cluster, "configmap web -n team-a").await.unwrap();
    assert_eq!(web["data"]["text"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn condition_names_each_object_that_cannot_be_restored() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let names = ["first", "second", "third"];
    let config = |name: &str| CONFIG.replace("name: web", &format!("name: {name}"));
    let content = names.map(config).join("---\n");
    let reference = publish(&cluster, "team/both:1", |f| bundle_of(f, "both", &content)).await;
    apply(&cluster, &deployment("both", &reference, &json!({}))).await;
    until(&cluster, "bundledeployment both", "Ready", "True").await;
    for name in ["first", "second"] {
        let patch = r#"{"data":{"text":"mine"},"immutable":true}"#;
        let line = format!("patch configmap {name} -n team-a --type=merge --patch={patch}");
        kubectl(&cluster, &line).await;
    }
    for kind in ["Ready", "Drifted"] {
        let status = if kind == "Ready" { "False" } else { "True" };
        wait::until_true(LONG, &format!("{kind} names both"), || async {
            let message = until(&cluster, "bundledeployment both", kind, status).await;
            let has = |name: &str| message.contains(&format!("ConfigMap/team-a/{name}"));
            if has("first") && has("second") && !has("third") {
                return Ok(true);
            }
            anyhow::bail!("{message}")
        })
        .await
        .unwrap();
    }
}
