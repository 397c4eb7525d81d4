//! Conflict with another actor that keeps reverting an object: the object is restored with
//! increasing backoff, and no other object is delayed. `managers` tests single changes.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use e2e::{Cluster, wait};
use serde_json::json;

use crate::scenarios::reconcile::{
    apply, bundle_of, deployment, get, kubectl, publish, stage, until,
};

/// Number of changes, higher than the number of changes that the reconciler restores without a
/// delay.
const CHANGES: u32 = 16;
/// Time limit for restoring a single change, including polling.
const SOON: Duration = Duration::from_secs(20);
/// Three times the maximum delay before an object is restored. A poll can miss a restored object,
/// because the next change follows after a second.
const LONGEST: Duration = Duration::from_secs(120);

fn content() -> String {
    let mut content = String::new();
    for number in 0..15 {
        write!(
            content,
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: item-{number}, namespace: fights}}\ndata: {{text: hello}}\n"
        )
        .unwrap();
    }
    content
}

async fn patch(cluster: &Cluster, name: &str, text: &str) {
    let line = format!(
        "patch configmap {name} -n fights --type=merge --patch={{\"data\":{{\"text\":\"{text}\"}}}}"
    );
    kubectl(cluster, &line).await;
}

async fn text(cluster: &Cluster, name: &str) -> serde_json::Value {
    let found = get(cluster, &format!("configmap {name} -n fights")).await;
    found.unwrap_or_default()["data"]["text"].clone()
}

/// Changes `item-0` about once a second, without end.
async fn change_repeatedly(cluster: &Cluster, changes: &AtomicU32) {
    let mut next = tokio::time::interval(Duration::from_secs(1));
    loop {
        next.tick().await;
        let number = changes.fetch_add(1, Ordering::Relaxed);
        patch(cluster, "item-0", &format!("evil-{number}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_another_user_keeps_changing_delays_no_other_and_is_finally_restored() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace fights").await;
    let content = content();
    let reference = publish(&cluster, "team/fights:1", |f| {
        bundle_of(f, "fights", &content)
    })
    .await;
    apply(&cluster, &deployment("fights", &reference, &json!({}))).await;
    until(&cluster, "bundledeployment fights", "Ready", "True").await;

    let changes = AtomicU32::new(0);
    let scenario = async {
        wait::until_true(LONGEST, "the fight is on", || async {
            Ok(changes.load(Ordering::Relaxed) > CHANGES)
        })
        .await
        .unwrap();
        for number in 1..15 {
            let name = format!("item-{number}");
            patch(&cluster, &name, "evil").await;
            wait::until_true(SOON, &format!("{name} is restored"), || async {
                Ok(text(&cluster, &name).await == "hello")
            })
            .await
            .unwrap();
        }
        // The reconciler also restores `item-0` repeatedly, although another actor keeps changing
        // it.
        for _ in 0..2 {
            wait::until_true(LONGEST, "item-0 is restored", || async {
                Ok(text(&cluster, "item-0").await == "hello")
            })
            .await
            .unwrap();
            wait::until_true(SOON, "item-0 is changed", || async {
                Ok(text(&cluster, "item-0").await != "hello")
            })
            .await
            .unwrap();
        }
    };
    tokio::select! {
        () = change_repeatedly(&cluster, &changes) => {}
        () = scenario => {}
    }
    wait::until_true(LONGEST, "item-0 is restored after the fight", || async {
        Ok(text(&cluster, "item-0").await == "hello")
    })
    .await
    .unwrap();
    until(&cluster, "bundledeployment fights", "Ready", "True").await;
    check_correction_events(&cluster).await;
}

/// Checks that each object has its own Event, with the name of the user who changed the object.
async fn check_correction_events(cluster: &Cluster) {
    let events = get(cluster, "events.v1.events.k8s.io -n default")
        .await
        .unwrap();
    let has_event = |name: &str| {
        events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "DriftCorrected"
                && event["regarding"]["name"] == "fights"
                && event["related"]["kind"] == "ConfigMap"
                && event["related"]["namespace"] == "fights"
                && event["related"]["name"] == name
                && event["note"]
                    == format!(
                        "restored ConfigMap/fights/{name} (field manager \"kubectl-patch\" had written it)"
                    )
        })
    };
    for number in 1..15 {
        let name = format!("item-{number}");
        assert!(has_event(&name), "{name}: {events}");
    }
}
