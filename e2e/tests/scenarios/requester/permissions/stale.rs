//! State that changes between a check and the write that the check permits.

use bundle_testkit::{Fault, Registry};

use crate::scenarios::objects::KEY;
use crate::scenarios::requester::classes::class_change::{approve, gated};
use crate::scenarios::requester::classes::{delegate_with, under};
use crate::scenarios::requester::policies::{policy, resource_rule, until_enforced};
use crate::scenarios::requester::*;

fn is_asked_for_referrers(registry: &Registry) -> bool {
    let lines = registry.lines();
    lines.iter().any(|line| line.contains("/referrers/"))
}

/// Pushes `objects` to a separate registry, and deploys them as `user` with a paused
/// BundleDeployment. `adapt` can change this BundleDeployment before it is applied. Waits until the
/// content is unpacked, and returns the registry and the pinned reference.
async fn deploy_paused(
    cluster: &Cluster,
    user: &str,
    objects: &[Value],
    adapt: impl Fn(Value) -> Value,
) -> (Registry, String) {
    let registry = Registry::without_faults().await.unwrap();
    let folder = write(cluster, user, objects);
    let reference = registry.reference(&format!("{user}:1.0.0"));
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference])
        .await
        .unwrap();
    let pinned = pushed.success().unwrap().lines().last().unwrap().to_owned();
    let object = adapt(deployment(user, &pinned, &json!({"paused": true})));
    let written = apply_as(cluster, &object, Some(user)).await;
    written.success().unwrap();
    until(cluster, user, "HasValidBundle", "True").await;
    (registry, pinned)
}

/// Resumes the BundleDeployment of `user`, and returns while the registry delays its response to
/// the request for signatures.
async fn resume_and_hold(cluster: &Cluster, user: &str, registry: &Registry) {
    let signatures = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": {"name": user},
        "spec": {
            "mode": "warn",
            "images": [{"glob": format!("{}/*", registry.host())}],
            "authorities": [{"key": {"data": KEY}}],
        },
    });
    put(cluster, &[signatures]).await;
    registry.set_fault(Some(Fault::HeldReferrers));
    wait::until_true(LONG, "the registry is asked for signatures", || async {
        set_paused(cluster, user, false).await;
        Ok(is_asked_for_referrers(registry))
    })
    .await
    .unwrap();
}

async fn set_paused(cluster: &Cluster, user: &str, is_paused: bool) {
    let patch = json!({"spec": {"paused": is_paused}});
    let line = format!("patch bundledeployment {user} --type=merge --patch={patch} --as={user}");
    try_kubectl(cluster, &line).await.success().unwrap();
}

/// Allows the registry to respond, and waits until a condition of the last generation of the
/// BundleDeployment is `False` with this reason. The object `what` must not exist at any time.
async fn release_and_expect(
    cluster: &Cluster,
    (user, registry): (&str, &Registry),
    (kind, reason): (&str, &str),
    what: &str,
) {
    registry.set_fault(None);
    wait::until_true(LONG, "the installation ends", || async {
        assert_eq!(get(cluster, what).await, None, "it was created");
        let found = get(cluster, &format!("bundledeployment {user}")).await;
        let found = found.unwrap_or_default();
        let message = condition(&found, kind);
        let is_ended = message["status"] == "False"
            && message["reason"] == reason
            && message["observedGeneration"] == found["metadata"]["generation"];
        anyhow::ensure!(is_ended, "{}", found["status"]["conditions"]);
        Ok(true)
    })
    .await
    .unwrap();
    let line = format!("delete signaturepolicy {user}");
    try_kubectl(cluster, &line).await.success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_installed_if_its_approval_is_withdrawn_while_signatures_are_looked_up() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "stalled-approval";
    tenant(&cluster, user, &json!([])).await;
    delegate_with(&cluster, user, user, &gated(&[user])).await;
    let objects = [note(user, "one")];
    let (registry, reference) =
        deploy_paused(&cluster, user, &objects, |object| under(user, object)).await;
    approve(&cluster, user, user, &reference).await;
    let approval = format!("bundleapproval {user}");
    until_condition(&cluster, &approval, "Accepted", "True").await;
    resume_and_hold(&cluster, user, &registry).await;
    let line = format!("delete {approval}");
    try_kubectl(&cluster, &line).await.success().unwrap();
    let what = format!("configmap one -n {user}");
    let expected = ("Approved", "NotApproved");
    release_and_expect(&cluster, (user, &registry), expected, &what).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_installed_if_a_policy_becomes_stricter_while_signatures_are_looked_up() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "stalled-policy";
    tenant(&cluster, user, &json!([])).await;
    let objects = [note(user, "one")];
    let (registry, _) = deploy_paused(&cluster, user, &objects, |object| object).await;
    resume_and_hold(&cluster, user, &registry).await;
    let line = format!(
        "patch signaturepolicy {user} --type=merge --patch={{\"spec\":{{\"mode\":\"enforce\"}}}}"
    );
    try_kubectl(&cluster, &line).await.success().unwrap();
    let policy = format!("signaturepolicy {user}");
    wait::until_true(LONG, "the webhook has read the policy", || async {
        let found = get(&cluster, &policy).await.unwrap_or_default();
        Ok(found["status"]["observedGeneration"] == found["metadata"]["generation"])
    })
    .await
    .unwrap();
    let what = format!("configmap one -n {user}");
    let expected = ("Installed", "InstallFailed");
    release_and_expect(&cluster, (user, &registry), expected, &what).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_installed_if_the_deployment_is_paused_while_signatures_are_looked_up() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "stalled-pause";
    tenant(&cluster, user, &json!([])).await;
    let objects = [note(user, "one")];
    let (registry, _) = deploy_paused(&cluster, user, &objects, |object| object).await;
    resume_and_hold(&cluster, user, &registry).await;
    set_paused(&cluster, user, true).await;
    let what = format!("configmap one -n {user}");
    let expected = ("Progressing", "Paused");
    release_and_expect(&cluster, (user, &registry), expected, &what).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_reviewed_after_registry_requests_so_that_a_recreated_namespace_gets_nothing()
 {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "stalling";
    tenant(&cluster, user, &json!([])).await;
    let objects = [
        note(user, "one"),
        binding("metrics", Some(user), "admin", user),
    ];
    let (registry, _) = deploy_paused(&cluster, user, &objects, |object| object).await;
    resume_and_hold(&cluster, user, &registry).await;
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
        let is_rejected = condition(&found, "Authorized")["status"] == "False";
        anyhow::ensure!(is_rejected, "{}", found["status"]["conditions"]);
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
async fn result_for_an_object_is_not_cached_after_the_object_has_changed() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "recalled";
    tenant(&cluster, user, &json!([])).await;
    let updates = resource_rule("", "configmaps", &["UPDATE"]);
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
    // The change of the mode causes another apply of the object. The policy admits this apply,
    // because the object has no label `lock`.
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
