//! Change of a BundleDeployment to another class with `authorization: Class`: content admitted
//! under the former class counts as new. `classes` tests the class's own content.

use super::{delegate_with, under, until_permission_denied};
use crate::scenarios::requester::removal::{remove, until_kept};
use crate::scenarios::requester::*;

/// Returns the spec of a class whose content requires approval by another person.
pub(in crate::scenarios::requester) fn gated(namespaces: &[&str]) -> Value {
    json!({
        "approval": {"mode": "Required", "by": "AnotherPerson"},
        "targets": {"namespaces": namespaces},
    })
}

/// Approves, as the administrator, the content of `reference` for the BundleDeployment `name`.
pub(in crate::scenarios::requester) async fn approve(
    cluster: &Cluster,
    approval: &str,
    name: &str,
    reference: &str,
) {
    let found = get(cluster, &format!("bundledeployment {name}")).await;
    let uid = found.unwrap_or_default()["metadata"]["uid"].clone();
    let digest = reference.rsplit('@').next();
    let object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleApproval",
        "metadata": {"name": approval},
        "spec": {"bundleDeployment": {"name": name, "uid": uid}, "digest": digest},
    });
    put(cluster, &[object]).await;
}

async fn until_unapproved(cluster: &Cluster, name: &str) -> String {
    let found = until(cluster, name, "Approved", "False").await;
    found["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_another_class_is_neither_installed_nor_removed_without_approval() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, home, lost) = ("changer", "changer", "changer-lost");
    tenant(&cluster, user, &json!([])).await;
    put(
        &cluster,
        &[
            namespace(lost),
            binding("changer-lost", Some(lost), "admin", user),
        ],
    )
    .await;
    let objects = [
        note(home, "kept"),
        binding("metrics", Some(lost), "view", user),
    ];
    let reference = publish(&cluster, user, &objects).await;
    let written = apply_as(
        &cluster,
        &deployment(user, &reference, &json!({})),
        Some(user),
    )
    .await;
    written.success().unwrap();
    until(&cluster, user, "Installed", "True").await;

    // The namespace belongs to another user now.
    for line in [
        "delete namespace changer-lost",
        "delete rolebinding tenant-admin -n changer",
    ] {
        try_kubectl(&cluster, line).await.success().unwrap();
    }
    put(&cluster, &[namespace(lost)]).await;
    until_permission_denied(&cluster, user, "delete configmaps -n changer").await;
    until_withdrawn(&cluster, user).await;

    delegate_with(&cluster, "changer-gated", user, &gated(&["changer*"])).await;
    let gated = under("changer-gated", deployment(user, &reference, &json!({})));
    apply_as(&cluster, &gated, Some(user))
        .await
        .success()
        .unwrap();
    until(&cluster, user, "Installed", "False").await;
    until_unapproved(&cluster, user).await;
    assert_eq!(
        get(&cluster, "rolebinding metrics -n changer-lost").await,
        None
    );

    // The class does not cover the objects that it would remove.
    remove(&cluster, user).await;
    let reported = until_kept(
        &cluster,
        user,
        ("ConfigMap/changer/kept", "configmap kept -n changer"),
    )
    .await;
    assert!(
        reported.contains("changer has no permission to delete it"),
        "{reported}"
    );
    put(
        &cluster,
        &[binding("tenant-admin", Some(home), "admin", user)],
    )
    .await;
    // After so many failures the next retry is minutes away; a write triggers it immediately.
    wait::until_true(LONG, "the removal ends", || async {
        let line = "annotate bundledeployment changer asked=again --overwrite";
        if !try_kubectl(&cluster, line).await.is_success() {
            return Ok(get(&cluster, "bundledeployment changer").await.is_none());
        }
        Ok(false)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn former_content_is_not_restored_by_a_class_that_waits_for_approval() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "changer-former";
    tenant(&cluster, user, &json!([])).await;
    let objects = [note(user, "one"), note(user, "two")];
    deploy(&cluster, user, user, &objects[..1], &json!({})).await;
    until(&cluster, user, "Installed", "True").await;

    delegate_with(
        &cluster,
        "changer-former",
        user,
        &gated(&["changer-former"]),
    )
    .await;
    let reference = publish(&cluster, "changer-former-next", &objects).await;
    let next = under("changer-former", deployment(user, &reference, &json!({})));
    apply_as(&cluster, &next, Some(user))
        .await
        .success()
        .unwrap();
    until_unapproved(&cluster, user).await;
    try_kubectl(
        &cluster,
        "delete rolebinding tenant-admin -n changer-former",
    )
    .await
    .success()
    .unwrap();
    until_permission_denied(&cluster, user, "patch configmaps -n changer-former").await;
    try_kubectl(&cluster, "delete configmap one -n changer-former")
        .await
        .success()
        .unwrap();
    until_withdrawn(&cluster, user).await;
    assert_eq!(get(&cluster, "configmap one -n changer-former").await, None);

    // Approved, the class installs it, and restores it from then on.
    approve(&cluster, "changer-former", user, &reference).await;
    until(&cluster, user, "Installed", "True").await;
    try_kubectl(&cluster, "delete configmap one -n changer-former")
        .await
        .success()
        .unwrap();
    wait::until_true(LONG, "the class restores its content", || async {
        Ok(get(&cluster, "configmap one -n changer-former")
            .await
            .is_some())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_does_not_cover_an_adoption_that_is_requested_later() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "changer-adopts";
    tenant(&cluster, user, &json!([])).await;
    delegate_with(
        &cluster,
        "changer-adopts",
        user,
        &gated(&["changer-theirs"]),
    )
    .await;
    let mut theirs = note("changer-theirs", "one");
    theirs["data"]["a"] = "theirs".into();
    put(&cluster, &[namespace("changer-theirs"), theirs]).await;
    let reference = publish(&cluster, user, &[note("changer-theirs", "one")]).await;
    let prevents = under(
        "changer-adopts",
        deployment(user, &reference, &json!({"collision": "Prevent"})),
    );
    apply_as(&cluster, &prevents, Some(user))
        .await
        .success()
        .unwrap();
    approve(&cluster, "changer-adopts", user, &reference).await;
    until(&cluster, user, "Installed", "False").await;

    let adopts = under(
        "changer-adopts",
        deployment(user, &reference, &json!({"collision": "Adopt"})),
    );
    apply_as(&cluster, &adopts, Some(user))
        .await
        .success()
        .unwrap();
    let reported = until_unapproved(&cluster, user).await;
    assert!(
        reported.contains("changed after this approval"),
        "{reported}"
    );
    let one = get(&cluster, "configmap one -n changer-theirs")
        .await
        .unwrap_or_default();
    assert_eq!(one["data"]["a"], "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_condition_of_a_paused_deployment_names_its_present_class() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "changer-paused";
    tenant(&cluster, user, &json!([])).await;
    let reference = publish(&cluster, user, &[note(user, "one")]).await;
    let written = deployment(user, &reference, &json!({}));
    apply_as(&cluster, &written, Some(user))
        .await
        .success()
        .unwrap();
    until(&cluster, user, "Installed", "True").await;
    delegate_with(&cluster, "changer-paused", user, &gated(&[user])).await;
    let paused = deployment(user, &reference, &json!({"paused": true}));
    apply_as(&cluster, &under("changer-paused", paused), Some(user))
        .await
        .success()
        .unwrap();
    let reported = until_unapproved(&cluster, user).await;
    assert!(reported.contains("waiting for approval"), "{reported}");
}
