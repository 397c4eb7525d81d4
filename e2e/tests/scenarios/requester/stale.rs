//! State that changes between a check and the write that it is for.

use bundle_testkit::{Fault, Registry};

use super::policies::{on, policy, until_enforced};
use super::*;

/// Public key without a known private key. The policy only makes the webhook fetch signatures.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7Y0qL4tO7w54g5f06c3Lfs1YV16L
V3fNXeWV4QEAPKvwv0ABl1erK1MDqgMrsdjMQWVx4XnUmO/grOVubgmDig==
-----END PUBLIC KEY-----
";

fn is_asked_for_referrers(registry: &Registry) -> bool {
    let lines = registry.lines();
    lines.iter().any(|line| line.contains("/referrers/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_asked_after_the_registry_so_that_a_namespace_made_anew_meanwhile_gets_nothing()
{
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "stalling";
    tenant(&cluster, user, &json!([])).await;
    let registry = Registry::honest().await.unwrap();
    let folder = write(
        &cluster,
        user,
        &[
            note(user, "one"),
            binding("metrics", Some(user), "admin", user),
        ],
    );
    let reference = registry.reference("stalling:1.0.0");
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference])
        .await
        .unwrap();
    let pinned = pushed.success().unwrap().lines().last().unwrap().to_owned();
    let object = deployment(user, &pinned, &json!({"paused": true}));
    let written = apply_as(&cluster, &object, Some(user)).await;
    written.success().unwrap();
    until(&cluster, user, "HasValidBundle", "True").await;
    // From now on, the registry of the tenant is asked for signatures, and takes its time.
    let signatures = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": {"name": "stalling"},
        "spec": {
            "mode": "warn",
            "images": [{"glob": format!("{}/*", registry.host())}],
            "authorities": [{"key": {"data": KEY}}],
        },
    });
    put(&cluster, &[signatures]).await;
    registry.set_fault(Some(Fault::HeldReferrers));
    wait::until_true(LONG, "the registry is asked for signatures", || async {
        let line = format!("patch bundledeployment {user} --type=merge --patch={{\"spec\":{{\"paused\":false}}}} --as={user}");
        try_kubectl(&cluster, &line).await.success()?;
        Ok(is_asked_for_referrers(&registry))
    })
    .await
    .unwrap();
    let line = format!("delete namespace {user}");
    try_kubectl(&cluster, &line).await.success().unwrap();
    let other = binding("owner", Some(user), "admin", "stalling-successor");
    put(&cluster, &[namespace(user), other]).await;
    registry.set_fault(None);
    let (metrics, note) = (
        format!("rolebinding metrics -n {user}"),
        format!("configmap one -n {user}"),
    );
    wait::until_true(LONG, "the rights are refused", || async {
        assert_eq!(get(&cluster, &metrics).await, None, "it was created");
        assert_eq!(get(&cluster, &note).await, None, "it was created");
        let found = get(&cluster, &format!("bundledeployment {user}")).await;
        let found = found.unwrap_or_default();
        let is_refused = condition(&found, "Authorized")["status"] == "False";
        anyhow::ensure!(is_refused, "{}", found["status"]["conditions"]);
        Ok(true)
    })
    .await
    .unwrap();
    try_kubectl(&cluster, "delete signaturepolicy stalling")
        .await
        .success()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_about_an_object_is_not_remembered_after_the_object_has_changed() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "recalled";
    tenant(&cluster, user, &json!([])).await;
    let updates = on("", "configmaps", &["UPDATE"]);
    let expression = "request.userInfo.username != 'recalled'";
    let mut lock = policy("recalled-lock", &updates, user, expression);
    lock[0]["spec"]["matchConditions"] = json!([{
        "name": "locked",
        "expression": "has(oldObject.metadata.labels) && 'lock' in oldObject.metadata.labels",
    }]);
    put(&cluster, &lock).await;
    let mut probe = note(user, "probe");
    probe["metadata"]["labels"] = json!({"lock": "yes"});
    put(&cluster, &[probe]).await;
    let line = format!("label configmap probe -n {user} more=yes");
    until_enforced(&cluster, "recalled-lock", user, &line).await;

    deploy(&cluster, user, user, &[note(user, "one")], &json!({})).await;
    until(&cluster, user, "Installed", "True").await;
    let mode = async |mode: &str| {
        let line = format!(
            "patch bundledeployment {user} --type=merge --patch={{\"spec\":{{\"drift\":{{\"mode\":\"{mode}\"}}}}}} --as={user}"
        );
        try_kubectl(&cluster, &line).await.success().unwrap();
    };
    // The object is applied again, and nothing refuses that.
    mode("Report").await;
    until(&cluster, user, "Installed", "True").await;
    let theirs = json!({"metadata": {"labels": {"lock": "yes"}}, "data": {"a": "theirs"}});
    let line = format!("patch configmap one -n {user} --type=merge --patch={theirs}");
    try_kubectl(&cluster, &line).await.success().unwrap();
    mode("Correct").await;
    wait::until_true(LONG, "the policy refuses the apply", || async {
        let one = get(&cluster, &format!("configmap one -n {user}")).await;
        let one = one.unwrap_or_default();
        assert_eq!(one["data"]["a"], "theirs", "it was overwritten");
        let found = get(&cluster, &format!("bundledeployment {user}")).await;
        let conditions = found.unwrap_or_default()["status"]["conditions"].to_string();
        anyhow::ensure!(conditions.contains("recalled-lock says no"), "{conditions}");
        Ok(true)
    })
    .await
    .unwrap();
}
