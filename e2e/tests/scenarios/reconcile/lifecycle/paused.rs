//! `spec.paused`: nothing is installed, upgraded or restored, and drift is reported. A pause of
//! unchanged content starts no installation.

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use super::until_no_writes;
use crate::scenarios::reconcile::{
    CONFIG, LONG, apply, bundle_of, condition, deployment, get, install_web, installed, kubectl,
    publish, stage, staged, until,
};

const DEPLOYMENT: &str = "bundledeployment web";
const CONFIG_MAP: &str = "configmap web -n team-a";

/// Returns a field of the ConfigMap.
async fn text(cluster: &Cluster) -> Value {
    get(cluster, CONFIG_MAP).await.unwrap()["data"]["text"].clone()
}

/// Waits until the Bundle of the template is unpacked, and `Progressing` and `Ready` have the
/// reason `Paused` for the current generation. Returns the BundleDeployment.
async fn until_paused(cluster: &Cluster) -> Value {
    wait::until(LONG, "the conditions have the reason Paused", || async {
        let object = get(cluster, DEPLOYMENT).await.unwrap_or_default();
        let has_reason = |(kind, reason): (&str, &str)| {
            let found = condition(&object, kind);
            found["reason"] == reason
                && found["observedGeneration"] == object["metadata"]["generation"]
        };
        let expected = [
            ("HasValidBundle", "UnpackSuccessful"),
            ("Progressing", "Paused"),
            ("Ready", "Paused"),
        ];
        if expected.into_iter().all(has_reason) {
            return Ok(Some(object));
        }
        anyhow::bail!("{}", object["status"]["conditions"])
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_deployment_reports_drift_and_installs_a_new_template_only_after_the_pause() {
    let (cluster, mut webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let second = CONFIG.replace("hello", "good morning");
    let two = publish(&cluster, "team/web:2", |f| bundle_of(f, "web", &second)).await;
    kubectl(&cluster, "create namespace team-a").await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;
    until(&cluster, DEPLOYMENT, "Ready", "True").await;
    let before = get(&cluster, DEPLOYMENT).await.unwrap();

    let paused = json!({"paused": true});
    apply(&cluster, &deployment("web", &one, &paused)).await;
    until_paused(&cluster).await;

    apply(&cluster, &deployment("web", &two, &paused)).await;
    until_paused(&cluster).await;
    assert_eq!(text(&cluster).await, "hello");

    let patch =
        "patch configmap web -n team-a --type=merge --patch={\"data\":{\"text\":\"changed\"}}";
    kubectl(&cluster, patch).await;
    // The first iteration ends with a restart of the webhook. The second iteration checks the same
    // state after the restart.
    for _ in 0..2 {
        let drifted = until(&cluster, DEPLOYMENT, "Drifted", "True").await;
        for part in ["ConfigMap/team-a/web", "spec.paused"] {
            assert!(drifted.contains(part), "{drifted}");
        }
        let object = until_paused(&cluster).await;
        for field in ["activeBundle", "revisions"] {
            assert_eq!(object["status"][field], before["status"][field]);
        }
        assert_eq!(text(&cluster).await, "changed");
        webhook.restart().await.unwrap();
        webhook.wait_for_admission().await.unwrap();
    }

    let running = json!({"paused": false});
    apply(&cluster, &deployment("web", &two, &running)).await;
    installed(&cluster, "web").await;
    assert_eq!(text(&cluster).await, "good morning");
    until(&cluster, DEPLOYMENT, "Ready", "True").await;
    until(&cluster, DEPLOYMENT, "Drifted", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_and_resume_of_installed_content_check_and_apply_nothing() {
    let (cluster, _webhook) = staged(Cluster::builder().audit(true)).await;
    let one = install_web(&cluster).await;
    until(&cluster, DEPLOYMENT, "Ready", "True").await;
    until_no_writes(&cluster).await;
    let before = get(&cluster, DEPLOYMENT).await.unwrap();
    let position = cluster.audit_position().unwrap();
    for paused in [true, false] {
        let object = deployment("web", &one, &json!({"paused": paused}));
        apply(&cluster, &object).await;
        if paused {
            until_paused(&cluster).await;
        }
        until(&cluster, DEPLOYMENT, "Installed", "True").await;
        until(&cluster, DEPLOYMENT, "Ready", "True").await;
    }
    until_no_writes(&cluster).await;
    let after = get(&cluster, DEPLOYMENT).await.unwrap();
    for field in ["activeBundle", "installed", "revisions"] {
        assert_eq!(after["status"][field], before["status"][field]);
    }
    // The pod sends dry runs as the requester. These dry runs also count as requests of the pod.
    let mut events = cluster.audit_since(position).unwrap();
    events.retain(|event| {
        let user = event["user"]["username"].as_str().unwrap_or_default();
        let is_pod = user.ends_with(":bundle-webhook");
        is_pod && event["objectRef"]["namespace"] == "team-a" && event["verb"] != "watch"
    });
    assert!(events.is_empty(), "{events:#?}");
}
