//! `spec.paused`: nothing is installed, upgraded or restored, and drift is reported.

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    CONFIG, LONG, apply, bundle_of, condition, deployment, get, installed, kubectl, publish, stage,
    until,
};

const DEPLOYMENT: &str = "bundledeployment web";
const CONFIG_MAP: &str = "configmap web -n team-a";

/// Returns a field of the ConfigMap.
async fn text(cluster: &Cluster) -> Value {
    get(cluster, CONFIG_MAP).await.unwrap()["data"]["text"].clone()
}

/// Waits until the Bundle of the template is unpacked, and `Progressing` and `Ready` have the reason
/// `Paused` for the current generation. Returns the BundleDeployment.
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
