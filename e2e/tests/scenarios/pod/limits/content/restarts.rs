//! Memory of a webhook that starts with many installed objects.

use super::*;

const DEPLOYMENTS: usize = 3;
/// Number of objects of one content. Together these objects use about 32 MiB of the 41 MiB for
/// content.
const POLICIES: usize = 6;
/// Number of entries of one object. The entries need much more memory than their text.
const ENTRIES: usize = 1900;

fn network_policy(name: &str) -> Vec<u8> {
    let entry = json!({"from": [{"podSelector": {"matchLabels": {"a": "b"}}}]});
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podSelector": {}, "ingress": vec![entry; ENTRIES]},
    });
    policy.to_string().into_bytes()
}

async fn until_condition(cluster: &Cluster, name: &str, kind: &str, expected: &str) {
    let what = format!("bundledeployment {name}");
    wait::until_true(LONG, &format!("{name}: {kind} is {expected}"), || async {
        let object = try_get(cluster, &what).await?.unwrap_or_default();
        Ok(condition(&object, kind)["status"] == expected)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_beside_large_contents_whose_drift_is_reported_does_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    for number in 0..DEPLOYMENTS {
        let name = format!("restarted-{number}");
        let files = (0..POLICIES).map(|policy| {
            let policy = format!("{name}-{policy}");
            let path = format!("manifests/{policy}.yaml");
            (path, network_policy(&policy))
        });
        let (reference, _) = publish(&registry, &name, &tar(files));
        let mut object = deployment(&name, &reference);
        object["spec"]["drift"] = json!({"mode": "Report"});
        apply(&cluster, &object).await;
        until_condition(&cluster, &name, "Installed", "True").await;
    }
    webhook.stop().await.unwrap();
    for number in 0..DEPLOYMENTS {
        let line = format!("delete networkpolicy restarted-{number}-0 -n default");
        kubectl(&cluster, &line).await;
    }
    webhook.start().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    for number in 0..DEPLOYMENTS {
        until_condition(&cluster, &format!("restarted-{number}"), "Drifted", "True").await;
    }
    survived(
        "a restart beside three large contents whose drift is reported",
        &mut webhook,
        probe,
    )
    .await;
}
