//! The removal of a BundleDeployment: objects that its requesters cannot delete are not deleted.
//! `stamps::deletions` tests deletions while admission is off, and `lifecycle::removal` tests
//! finalizers.

use super::policies::{policy, resource_rule, until_enforced};
use super::*;

mod created_namespace;
mod namespaces;
mod pruning;

/// Deletes the BundleDeployment `user` as the user with this name.
pub(super) async fn remove(cluster: &Cluster, user: &str) {
    let line = format!("delete bundledeployment {user} --wait=false --as={user}");
    try_kubectl(cluster, &line).await.success().unwrap();
}

pub(super) async fn until_removed(cluster: &Cluster, name: &str) {
    wait::until_true(LONG, &format!("{name} is removed"), || async {
        let object = get(cluster, &format!("bundledeployment {name}")).await;
        if let Some(object) = &object {
            anyhow::bail!("{}", condition(object, "Ready"));
        }
        Ok(true)
    })
    .await
    .unwrap();
}

/// Waits until the removal of `name` reports `object`, and returns the message. Panics if the
/// object is deleted during the wait.
pub(super) async fn until_kept(cluster: &Cluster, name: &str, object: (&str, &str)) -> String {
    let (key, what) = object;
    wait::until(LONG, &format!("the removal waits for {key}"), || async {
        assert!(get(cluster, what).await.is_some(), "{what} was deleted");
        let found = get(cluster, &format!("bundledeployment {name}"))
            .await
            .unwrap_or_default();
        let found = condition(&found, "Ready");
        let reported = found["message"].as_str().unwrap_or_default();
        if found["reason"] == "RemovalRefused" && reported.contains(key) {
            return Ok(Some(reported.to_owned()));
        }
        anyhow::bail!("{found}")
    })
    .await
    .unwrap()
}

/// Returns the value of the annotation `core.rukpak.io/admit` in a message.
fn admit_token(message: &str) -> String {
    let (_, rest) = message
        .split_once("core.rukpak.io/admit=")
        .unwrap_or_else(|| panic!("no hint in `{message}`"));
    rest.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Creates a tenant, and deploys `own` in namespace `USER` and `theirs` in `USER-shared` as the
/// user. `theirs` existed before and is adopted. Afterwards the user has permission to write
/// ConfigMaps in `USER-shared`, but not to delete them.
async fn adopted(cluster: &Cluster, user: &str) {
    tenant(cluster, user, &json!([])).await;
    let shared = format!("{user}-shared");
    let writer = format!("{user}-writer");
    let role = |verbs: Value| {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
        cluster_role(&writer, &rules)
    };
    put(
        cluster,
        &[
            namespace(&shared),
            role(json!(["get", "create", "patch", "update", "delete"])),
            binding(&writer, Some(&shared), &writer, user),
            note(&shared, "theirs"),
        ],
    )
    .await;
    let objects = [note(user, "own"), note(&shared, "theirs")];
    let adopt = json!({"collision": "Adopt"});
    deploy(cluster, user, user, &objects, &adopt).await;
    until(cluster, user, "Installed", "True").await;
    put(
        cluster,
        &[role(json!(["get", "create", "patch", "update"]))],
    )
    .await;
    let line = format!("auth can-i delete configmaps -n {shared} --as={user}");
    wait::until_true(LONG, "the right is withdrawn", || async {
        Ok(try_kubectl(cluster, &line).await.stdout.trim() == "no")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn adopted_object_that_the_requester_cannot_delete_stays_until_another_user_takes_over() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    adopted(&cluster, "adopter").await;
    remove(&cluster, "adopter").await;
    let theirs = "configmap theirs -n adopter-shared";
    let key = "ConfigMap/adopter-shared/theirs";
    let reported = until_kept(&cluster, "adopter", (key, theirs)).await;
    for part in [
        "adopter has no permission to delete it",
        "objects: Orphan",
        "manage",
    ] {
        assert!(reported.contains(part), "{part} is not in {reported}");
    }
    // Objects that the requester has permission to delete are deleted.
    assert_eq!(get(&cluster, "configmap own -n adopter").await, None);

    // The verb `manage` alone is not sufficient: the new requester must have permission to delete
    // the objects.
    put(
        &cluster,
        &[
            binding("overseer-admin", None, "bundle-admin", "overseer"),
            binding("overseer-user", None, "bundle-user", "overseer"),
        ],
    )
    .await;
    let line = format!(
        "annotate bundledeployment adopter core.rukpak.io/admit={} --as=overseer",
        admit_token(&reported)
    );
    try_kubectl(&cluster, &line).await.success().unwrap();
    wait::until_true(LONG, "the one who took over is named", || async {
        let reported = until_kept(&cluster, "adopter", (key, theirs)).await;
        Ok(reported.contains("overseer has no permission to delete it")
            && !reported.contains("adopter has no permission"))
    })
    .await
    .unwrap();
    let role = binding("overseer", Some("adopter-shared"), "admin", "overseer");
    put(&cluster, &[role]).await;
    until_removed(&cluster, "adopter").await;
    assert_eq!(get(&cluster, theirs).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_continues_after_another_user_deleted_the_objects_that_the_requester_cannot() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    adopted(&cluster, "asker").await;
    remove(&cluster, "asker").await;
    let theirs = "configmap theirs -n asker-shared";
    until_kept(&cluster, "asker", ("ConfigMap/asker-shared/theirs", theirs)).await;
    try_kubectl(&cluster, &format!("delete {theirs}"))
        .await
        .success()
        .unwrap();
    until_removed(&cluster, "asker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_with_orphan_leaves_objects_that_the_requester_cannot_delete() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    adopted(&cluster, "leaver").await;
    remove(&cluster, "leaver").await;
    let theirs = "configmap theirs -n leaver-shared";
    let key = "ConfigMap/leaver-shared/theirs";
    until_kept(&cluster, "leaver", (key, theirs)).await;
    let patch = r#"{"spec":{"deletion":{"objects":"Orphan"}}}"#;
    let line = format!("patch bundledeployment leaver --type=merge --patch={patch} --as=leaver");
    try_kubectl(&cluster, &line).await.success().unwrap();
    until_removed(&cluster, "leaver").await;
    assert!(get(&cluster, theirs).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_was_not_pruned_stays_at_removal_until_its_policy_is_deleted() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "spared", &json!([])).await;
    let objects = [note("spared", "one"), note("spared", "two")];
    deploy(&cluster, "spared", "spared", &objects, &json!({})).await;
    until(&cluster, "spared", "Installed", "True").await;
    let configs = resource_rule("", "configmaps", &["DELETE"]);
    let expression = "request.userInfo.username != 'spared' || oldObject.metadata.name != 'two'";
    put(
        &cluster,
        &policy("spared-guard", &configs, "spared", expression),
    )
    .await;
    let line = "delete configmap two -n spared";
    until_enforced(&cluster, "spared-guard", "spared", line).await;
    let fewer = publish(&cluster, "spared-fewer", &objects[..1]).await;
    let upgraded = deployment("spared", &fewer, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some("spared")).await;
    upgraded.success().unwrap();
    wait::until_true(LONG, "pruning keeps two", || async {
        let found = get(&cluster, "bundledeployment spared")
            .await
            .unwrap_or_default();
        let warnings = found["status"]["warnings"].to_string();
        Ok(warnings.contains("spared-guard says no"))
    })
    .await
    .unwrap();

    remove(&cluster, "spared").await;
    let two = ("ConfigMap/spared/two", "configmap two -n spared");
    let reported = until_kept(&cluster, "spared", two).await;
    assert!(reported.contains("spared-guard says no"), "{reported}");
    assert_eq!(get(&cluster, "configmap one -n spared").await, None);
    let line = "delete validatingadmissionpolicybinding spared-guard";
    try_kubectl(&cluster, line).await.success().unwrap();
    until_removed(&cluster, "spared").await;
    assert_eq!(get(&cluster, "configmap two -n spared").await, None);
}
