//! Objects that an upgrade prunes, and objects that an upgrade does not prune because the requester
//! has no permission to delete them. `policies` tests policies about single objects;
//! `lifecycle::removal` tests finalizers.

use crate::scenarios::objects::kubectl;
use crate::scenarios::requester::policies::{policy, resource_rule, until_enforced};
use crate::scenarios::requester::*;

#[tokio::test(flavor = "multi_thread")]
async fn namespace_of_an_object_that_is_not_pruned_stays() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let verbs = ["get", "create", "patch", "update", "delete"];
    let rules =
        json!([{"apiGroups": [""], "resources": ["namespaces", "configmaps"], "verbs": verbs}]);
    tenant(&cluster, "tidy-tenant", &rules).await;
    let stays = note("tidy-tenant", "stays");
    let objects = [
        namespace("tidy-tenant-old"),
        note("tidy-tenant-old", "one"),
        stays.clone(),
    ];
    deploy(&cluster, "tidy-tenant", "tidy-tenant", &objects, &json!({})).await;
    until(&cluster, "tidy-tenant", "Installed", "True").await;
    let configs = resource_rule("", "configmaps", &["DELETE"]);
    let expression = "request.userInfo.username != 'tidy-tenant'";
    let guard = policy("tidy-tenant-guard", &configs, "tidy-tenant-old", expression);
    put(&cluster, &guard).await;
    let line = "delete configmap one -n tidy-tenant-old";
    until_enforced(&cluster, "tidy-tenant-guard", "tidy-tenant", line).await;
    let fewer = publish(&cluster, "tidy-tenant-fewer", &[stays]).await;
    let upgraded = deployment("tidy-tenant", &fewer, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some("tidy-tenant")).await;
    upgraded.success().unwrap();
    wait::until_true(LONG, "the remaining objects are reported", || async {
        let found = get(&cluster, "bundledeployment tidy-tenant").await;
        let found = found.unwrap_or_default();
        let warnings = found["status"]["warnings"].to_string();
        if ["tidy-tenant-guard says no", "Namespace/tidy-tenant-old"]
            .iter()
            .all(|part| warnings.contains(part))
        {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"])
    })
    .await
    .unwrap();
    until(&cluster, "tidy-tenant", "Installed", "True").await;
    assert!(
        get(&cluster, "configmap one -n tidy-tenant-old")
            .await
            .is_some()
    );
    let found = get(&cluster, "namespace tidy-tenant-old").await.unwrap();
    assert_eq!(found["metadata"]["deletionTimestamp"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_was_never_applied_is_not_adopted_and_survives_upgrade_and_removal() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "taker", &json!([])).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "theirs", "namespace": "taker"}, "spec": {"ports": [{"port": 80}]},
    });
    put(&cluster, std::slice::from_ref(&theirs)).await;
    // The dry runs as the requester succeed. The policy rejects only the apply by the
    // ServiceAccount, long before the Service is applied.
    let configs = resource_rule("", "configmaps", &["CREATE"]);
    let expression = "request.userInfo.username == 'taker'";
    let guard = policy("taker-guard", &configs, "taker", expression);
    put(&cluster, &guard).await;
    let role = binding("prober", Some("taker"), "admin", "prober");
    put(&cluster, &[role]).await;
    let line = "create configmap probe -n taker";
    until_enforced(&cluster, "taker-guard", "prober", line).await;
    let adopt = json!({"collision": "Adopt"});
    let objects = [note("taker", "one"), theirs];
    deploy(&cluster, "taker", "taker", &objects, &adopt).await;
    wait::until_true(LONG, "the apply is refused", || async {
        let found = get(&cluster, "bundledeployment taker").await;
        let found = found.unwrap_or_default();
        if condition(&found, "Installed")["message"]
            .as_str()
            .is_some_and(|reported| reported.contains("taker-guard says no"))
        {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"]["conditions"])
    })
    .await
    .unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "own", "namespace": "taker"}});
    let without = publish(&cluster, "taker-without", &[account]).await;
    let upgraded = deployment("taker", &without, &adopt);
    let upgraded = apply_as(&cluster, &upgraded, Some("taker")).await;
    upgraded.success().unwrap();
    until(&cluster, "taker", "Installed", "True").await;
    assert!(get(&cluster, "service theirs -n taker").await.is_some());
    let line = "delete bundledeployment taker --wait=true --timeout=60s --as=taker";
    try_kubectl(&cluster, line).await.success().unwrap();
    assert!(get(&cluster, "service theirs -n taker").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_policy_that_stops_the_removal_is_reported() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "stuck", &json!([])).await;
    deploy(
        &cluster,
        "stuck",
        "stuck",
        &[note("stuck", "one")],
        &json!({}),
    )
    .await;
    until(&cluster, "stuck", "Installed", "True").await;
    // The dry runs as the requester succeed. The policy rejects only the deletion by the
    // ServiceAccount.
    let configs = resource_rule("", "configmaps", &["DELETE"]);
    let guard = policy(
        "stuck-guard",
        &configs,
        "stuck",
        "request.userInfo.username == 'stuck'",
    );
    put(&cluster, &guard).await;
    let role = binding("stuck-prober", Some("stuck"), "admin", "prober");
    put(&cluster, &[role]).await;
    let line = "delete configmap one -n stuck";
    until_enforced(&cluster, "stuck-guard", "prober", line).await;
    let line = "delete bundledeployment stuck --wait=false --as=stuck";
    try_kubectl(&cluster, line).await.success().unwrap();
    wait::until_true(LONG, "the policy is reported", || async {
        let found = get(&cluster, "bundledeployment stuck").await;
        let found = condition(&found.unwrap_or_default(), "Ready").clone();
        if found["message"]
            .as_str()
            .is_some_and(|reported| reported.contains("stuck-guard says no"))
        {
            return Ok(true);
        }
        anyhow::bail!("{found}")
    })
    .await
    .unwrap();
    let line = "delete validatingadmissionpolicybinding stuck-guard";
    try_kubectl(&cluster, line).await.success().unwrap();
    wait::until_true(LONG, "the removal goes on", || async {
        let found = get(&cluster, "bundledeployment stuck").await;
        Ok(found.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_a_failed_prune_left_stay_after_use_of_the_class_was_withdrawn() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "late-prune";
    let old = "late-prune-old";
    let verbs = ["get", "create", "patch", "update", "delete"];
    let rules =
        json!([{"apiGroups": [""], "resources": ["namespaces", "configmaps"], "verbs": verbs}]);
    tenant(&cluster, name, &rules).await;
    let stays = note(name, "stays");
    let objects = [namespace(old), note(old, "one"), stays.clone()];
    deploy(&cluster, name, name, &objects, &json!({})).await;
    until(&cluster, name, "Installed", "True").await;
    let set_finalizers = |finalizers: &str| {
        let patch = format!(r#"{{"metadata":{{"finalizers":{finalizers}}}}}"#);
        format!("patch configmap one -n {old} --type=merge --patch={patch}")
    };
    kubectl(&cluster, &set_finalizers(r#"["example.com/hold"]"#)).await;
    let fewer = publish(&cluster, "late-prune-fewer", &[stays]).await;
    let upgraded = deployment(name, &fewer, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some(name)).await;
    upgraded.success().unwrap();
    wait::until_true(
        LONG,
        "the prune waits for the object that is held",
        || async {
            let found = get(&cluster, &format!("bundledeployment {name}")).await;
            let status = found.unwrap_or_default()["status"].to_string();
            anyhow::ensure!(status.contains("waiting for the deletion of"), "{status}");
            Ok(true)
        },
    )
    .await
    .unwrap();

    kubectl(&cluster, &format!("delete clusterrolebinding {name}-user")).await;
    let why = until_withdrawn(&cluster, name).await;
    assert!(why.contains("use") && why.contains(CLASS), "{why}");
    kubectl(&cluster, &set_finalizers("null")).await;
    let held = format!("configmap one -n {old}");
    wait::until_true(LONG, "the object that was held is gone", || async {
        Ok(get(&cluster, &held).await.is_none())
    })
    .await
    .unwrap();
    let wake = |value: &str| format!("annotate --overwrite bundledeployment {name} woken={value}");
    kubectl(&cluster, &wake("without-use")).await;
    until_withdrawn(&cluster, name).await;
    let kept = get(&cluster, &format!("namespace {old}")).await.unwrap();
    assert_eq!(kept["metadata"]["deletionTimestamp"], Value::Null);

    put(
        &cluster,
        &[binding("late-prune-user", None, "bundle-user", name)],
    )
    .await;
    kubectl(&cluster, &wake("with-use")).await;
    wait::until_true(LONG, "the rest is pruned", || async {
        let namespace = get(&cluster, &format!("namespace {old}")).await;
        Ok(namespace.is_none_or(|found| found["metadata"]["deletionTimestamp"].is_string()))
    })
    .await
    .unwrap();
}
