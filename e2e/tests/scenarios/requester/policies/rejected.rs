//! Objects that the API server rejects for a reason other than the permissions of their requester.

use crate::scenarios::requester::*;

#[tokio::test(flavor = "multi_thread")]
async fn object_whose_restore_a_quota_prevents_is_not_reported_as_withdrawn_permission() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "rejected", &json!([])).await;
    let objects = [note("rejected", "one"), note("rejected", "two")];
    deploy(&cluster, "rejected", "rejected", &objects, &json!({})).await;
    until(&cluster, "rejected", "Installed", "True").await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "rejected", "namespace": "rejected"},
        "spec": {"hard": {"count/configmaps": "0"}},
    });
    put(&cluster, &[quota]).await;
    wait::until_true(LONG, "the quota is in force", || async {
        let quota = get(&cluster, "resourcequota rejected -n rejected").await;
        Ok(quota.is_some_and(|quota| !quota["status"]["hard"].is_null()))
    })
    .await
    .unwrap();
    let line = "delete configmap one -n rejected";
    try_kubectl(&cluster, line).await.success().unwrap();
    let conditions = wait::until(LONG, "the quota is reported", || async {
        let object = get(&cluster, "bundledeployment rejected").await;
        let conditions = object.unwrap_or_default()["status"]["conditions"].to_string();
        if conditions.contains("exceeded quota") {
            return Ok(Some(conditions));
        }
        anyhow::bail!("{conditions}")
    })
    .await
    .unwrap();
    assert!(
        conditions.contains("ConfigMap/rejected/one"),
        "{conditions}"
    );
    assert!(!conditions.contains("RightsWithdrawn"), "{conditions}");
    assert!(!conditions.contains("RequesterRefused"), "{conditions}");
    let line = "delete resourcequota rejected -n rejected";
    try_kubectl(&cluster, line).await.success().unwrap();
}
