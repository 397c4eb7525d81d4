//! Change of a BundleDeployment to another class with `authorization: Class`: content that was
//! admitted under the former class is checked like new content. `classes` tests content that was
//! admitted under the current class.

use super::{delegate_with, under, until_permission_denied};
use crate::scenarios::requester::removal::{remove, until_kept};
use crate::scenarios::requester::*;

/// Returns the spec of a class that requires an approval by another person.
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
    let (object, _) = approval_of(cluster, approval, name, reference).await;
    put(cluster, &[object]).await;
}

/// Like [`approve`], but the approval also names the generation of the BundleDeployment, so the
/// approval covers the settings.
async fn approve_settings(cluster: &Cluster, approval: &str, name: &str, reference: &str) {
    let (mut object, generation) = approval_of(cluster, approval, name, reference).await;
    object["spec"]["bundleDeployment"]["generation"] = generation;
    put(cluster, &[object]).await;
}

/// Returns an approval, and the current generation of the BundleDeployment.
async fn approval_of(
    cluster: &Cluster,
    approval: &str,
    name: &str,
    reference: &str,
) -> (Value, Value) {
    let found = get(cluster, &format!("bundledeployment {name}")).await;
    let metadata = &found.unwrap_or_default()["metadata"];
    let digest = reference.rsplit('@').next();
    let object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleApproval",
        "metadata": {"name": approval},
        "spec": {"bundleDeployment": {"name": name, "uid": metadata["uid"]}, "digest": digest},
    });
    (object, metadata["generation"].clone())
}

/// Deletes the ConfigMap `one` of namespace `user`, and then an object of another BundleDeployment.
/// Waits until the pod has restored this object, and asserts that the pod has not restored the
/// ConfigMap.
async fn delete_without_restore(cluster: &Cluster, user: &str) {
    let other = format!("{user}-other");
    tenant(cluster, &other, &json!([])).await;
    let objects = [note(&other, "one")];
    deploy(cluster, &other, &other, &objects, &json!({})).await;
    until(cluster, &other, "Installed", "True").await;
    let line = format!("delete configmap one -n {user}");
    try_kubectl(cluster, &line).await.success().unwrap();
    let line = format!("annotate bundledeployment {user} asked=again");
    try_kubectl(cluster, &line).await.success().unwrap();
    for _ in 0..2 {
        let line = format!("delete configmap one -n {other}");
        try_kubectl(cluster, &line).await.success().unwrap();
        until_exists(cluster, &format!("configmap one -n {other}")).await;
    }
    assert_eq!(
        get(cluster, &format!("configmap one -n {user}")).await,
        None
    );
}

async fn until_exists(cluster: &Cluster, what: &str) {
    wait::until_true(LONG, &format!("{what} exists"), || async {
        Ok(get(cluster, what).await.is_some())
    })
    .await
    .unwrap();
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

    // The class does not cover the objects that the removal would delete.
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
    // After many failures, the next automatic retry is after minutes. A write triggers an immediate
    // retry.
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
    delete_without_restore(&cluster, user).await;

    // After the approval, the class installs and restores the object.
    approve(&cluster, "changer-former", user, &reference).await;
    until(&cluster, user, "Installed", "True").await;
    try_kubectl(&cluster, "delete configmap one -n changer-former")
        .await
        .success()
        .unwrap();
    until_exists(&cluster, "configmap one -n changer-former").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_content_is_restored_with_its_approved_configuration() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "changer-config";
    tenant(&cluster, user, &json!([])).await;
    let class = &gated(&[user]);
    delegate_with(&cluster, user, user, class).await;
    let folder = write(&cluster, user, &[note(user, "one")]);
    let file = std::path::Path::new(&folder).join("bundle.yaml");
    let package = fs_err::read_to_string(&file).unwrap();
    let config = "config: {schema: config.schema.json, default: config.yaml, patches: [{kind: ConfigMap, name: one, path: /data/a, value: /text}]}\n";
    fs_err::write(&file, package + config).unwrap();
    fs_err::write(file.with_file_name("config.yaml"), "text: default\n").unwrap();
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let schema_file = file.with_file_name("config.schema.json");
    fs_err::write(schema_file, schema.to_string()).unwrap();
    let reference = push(&cluster, user, &folder).await;
    let configured = |text: &str| {
        let config = json!({"config": {"text": text}});
        under(user, deployment(user, &reference, &config))
    };
    let text = || async {
        let object = get(&cluster, "configmap one -n changer-config").await;
        object.unwrap_or_default()["data"]["a"].clone()
    };
    let first = configured("first");
    let written = apply_as(&cluster, &first, Some(user)).await;
    written.success().unwrap();
    until_unapproved(&cluster, user).await;
    approve_settings(&cluster, "changer-config-first", user, &reference).await;
    until(&cluster, user, "Installed", "True").await;
    assert_eq!(text().await, "first");

    let second = configured("second");
    let written = apply_as(&cluster, &second, Some(user)).await;
    written.success().unwrap();
    let reported = until_unapproved(&cluster, user).await;
    assert!(
        reported.contains("changed after this approval"),
        "{reported}"
    );
    assert_eq!(text().await, "first");
    let line = "delete configmap one -n changer-config";
    try_kubectl(&cluster, line).await.success().unwrap();
    until_exists(&cluster, "configmap one -n changer-config").await;
    assert_eq!(text().await, "first");

    approve_settings(&cluster, "changer-config-second", user, &reference).await;
    wait::until_true(LONG, "the second configuration is installed", || async {
        Ok(text().await == "second")
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
