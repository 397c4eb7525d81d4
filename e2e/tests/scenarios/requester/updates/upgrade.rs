//! Upgrades that fail after some objects were applied: status and output show both versions, and
//! the objects of the new version.

use crate::scenarios::requester::policies::{policy, resource_rule, until_enforced};
use crate::scenarios::requester::*;

#[tokio::test(flavor = "multi_thread")]
async fn partly_failed_upgrade_shows_both_versions_and_their_objects() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "halfway", &json!([])).await;
    let one = note("halfway", "one");
    let before = [one.clone(), note("halfway", "same")];
    deploy(&cluster, "halfway", "halfway", &before, &json!({})).await;
    until(&cluster, "halfway", "Installed", "True").await;
    // The dry runs as the requester succeed. The policy rejects only the apply by the
    // ServiceAccount, after the ConfigMaps were applied.
    let services = resource_rule("", "services", &["CREATE"]);
    let expression = "request.userInfo.username == 'halfway'";
    let guard = policy("halfway-guard", &services, "halfway", expression);
    put(&cluster, &guard).await;
    let role = binding("halfway-prober", Some("halfway"), "admin", "prober");
    put(&cluster, &[role]).await;
    let line = "create service clusterip probe --tcp=80 -n halfway";
    until_enforced(&cluster, "halfway-guard", "prober", line).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "late", "namespace": "halfway"}, "spec": {"ports": [{"port": 80}]},
    });
    let after = publish(&cluster, "halfway:2.0.0", &[one, service]).await;
    let upgraded = deployment("halfway", &after, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some("halfway")).await;
    upgraded.success().unwrap();
    let digest = after.split_once('@').unwrap().1;
    wait::until_true(LONG, "the upgrade is shown", || async {
        let found = get(&cluster, "bundledeployment halfway").await;
        let status = found.unwrap_or_default()["status"].clone();
        let upgrade = &status["upgrade"];
        if upgrade["digest"] == digest && upgrade["appliedObjects"][0] == "ConfigMap/halfway/one" {
            assert_eq!(
                (&upgrade["applied"], &upgrade["objects"]),
                (&json!(1), &json!(2))
            );
            assert_ne!(status["installed"]["digest"], digest);
            return Ok(true);
        }
        anyhow::bail!("{status}")
    })
    .await
    .unwrap();
    let shown = cluster.kubectl_bundle(["status", "halfway"]).await.unwrap();
    let shown = shown.success().unwrap();
    assert!(shown.contains("1 of 2 objects are applied"), "{shown}");
    assert!(shown.contains("2.0.0"), "{shown}");
    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        let line = format!("delete {kind} halfway-guard");
        try_kubectl(&cluster, &line).await.success().unwrap();
    }
    until(&cluster, "halfway", "Installed", "True").await;
    let found = get(&cluster, "bundledeployment halfway").await.unwrap();
    assert_eq!(
        found["status"]["upgrade"],
        Value::Null,
        "{}",
        found["status"]
    );
}
