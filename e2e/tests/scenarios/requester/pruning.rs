//! What an upgrade removes, and what stays because somebody may not delete it.
//! Policies about single objects are in `policies`, finalizers in `reconcile::removal`.

use super::policies::{on, policy, until_enforced};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn namespace_of_an_object_that_pruning_keeps_stays_with_it() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let verbs = ["get", "create", "patch", "update", "delete"];
    let rules =
        json!([{"apiGroups": [""], "resources": ["namespaces", "configmaps"], "verbs": verbs}]);
    tenant(&cluster, "pruner", &rules).await;
    let stays = note("pruner", "stays");
    let objects = [
        namespace("pruner-old"),
        note("pruner-old", "one"),
        stays.clone(),
    ];
    deploy(&cluster, "pruner", "pruner", &objects, &json!({})).await;
    until(&cluster, "pruner", "Installed", "True").await;
    let configs = on("", "configmaps", &["DELETE"]);
    let expression = "request.userInfo.username != 'pruner'";
    let guard = policy("pruner-guard", &configs, "pruner-old", expression);
    put(&cluster, &guard).await;
    let line = "delete configmap one -n pruner-old";
    until_enforced(&cluster, "pruner-guard", "pruner", line).await;
    let fewer = publish(&cluster, "pruner-fewer", &[stays]).await;
    let upgraded = deployment("pruner", &fewer, &json!({}));
    let upgraded = apply(&cluster, &upgraded, Some("pruner")).await;
    upgraded.success().unwrap();
    wait::until_true(LONG, "it is told what stays", || async {
        let found = get(&cluster, "bundledeployment pruner").await;
        let found = found.unwrap_or_default();
        let warnings = found["status"]["warnings"].to_string();
        if ["pruner-guard says no", "Namespace/pruner-old"]
            .iter()
            .all(|part| warnings.contains(part))
        {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"])
    })
    .await
    .unwrap();
    until(&cluster, "pruner", "Installed", "True").await;
    assert!(get(&cluster, "configmap one -n pruner-old").await.is_some());
    let found = get(&cluster, "namespace pruner-old").await.unwrap();
    assert_eq!(found["metadata"]["deletionTimestamp"], Value::Null);
}
