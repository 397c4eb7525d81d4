//! Recreated namespaces under a class with `authorization: Class`: only a change of the spec lets
//! the pod create objects in the new namespace. Other reasons to install the content again are not
//! sufficient. `records` tests restores, and `classes` tests a restart of the webhook.

use jiff::Timestamp;

use super::{delegate_with, under};
use crate::scenarios::requester::*;

const REPORT: &str = "was deleted and created again";

/// Asserts that the ConfigMap `one` does not exist in this namespace.
async fn check_absent(cluster: &Cluster, home: &str) {
    let one = get(cluster, &format!("configmap one -n {home}")).await;
    assert_eq!(one, None, "it was created in the new namespace");
}

/// Writes a BundleDeployment of `reference` under the class `user`, as `user`.
async fn write_spec(cluster: &Cluster, (user, name): (&str, &str), reference: &str, more: &Value) {
    let object = under(user, deployment(name, reference, more));
    let written = apply_as(cluster, &object, Some(user)).await;
    written.success().unwrap();
}

/// Waits until the conditions of a BundleDeployment contain `text`.
async fn until_message(cluster: &Cluster, name: &str, text: &str) {
    wait::until_true(LONG, text, || async {
        let found = get(cluster, &format!("bundledeployment {name}")).await;
        let conditions = found.unwrap_or_default()["status"]["conditions"].to_string();
        anyhow::ensure!(conditions.contains(text), "{conditions}");
        Ok(true)
    })
    .await
    .unwrap();
}

async fn recreate(cluster: &Cluster, home: &str) {
    let line = format!("delete namespace {home}");
    try_kubectl(cluster, &line).await.success().unwrap();
    put(cluster, &[namespace(home)]).await;
}

/// Waits until the automatic rollback is rejected, because namespace `home` was recreated.
async fn until_return_rejected(cluster: &Cluster, user: &str, home: &str) {
    let events =
        format!("events -A --field-selector involvedObject.name={user},reason=BUNDLE-INSTALL-122");
    wait::until_true(LONG, "the return is rejected", || async {
        // The next retry can be later than the deadline of this wait. The annotation starts an
        // immediate reconcile.
        let second = Timestamp::now().as_second();
        let line = format!("annotate bundledeployment {user} asked={second} --overwrite");
        try_kubectl(cluster, &line).await;
        check_absent(cluster, home).await;
        let found = get(cluster, &events).await.unwrap_or_default().to_string();
        anyhow::ensure!(
            found.contains(REPORT) && found.contains("BUNDLE-INSTALL-034"),
            "{found}"
        );
        Ok(true)
    })
    .await
    .unwrap();
    check_absent(cluster, home).await;
}

/// Waits until the content is installed, and asserts that the ConfigMap `one` exists.
async fn until_installed(cluster: &Cluster, name: &str, home: &str) {
    until(cluster, name, "Installed", "True").await;
    let one = get(cluster, &format!("configmap one -n {home}")).await;
    assert!(one.is_some());
}

/// Creates ServiceAccount `deployer` of namespace `user`, with permission to administer both
/// namespaces.
async fn create_deployer(cluster: &Cluster, user: &str, home: &str) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": user}});
    put(cluster, &[account]).await;
    for namespace in [user, home] {
        let mut role = binding("deployer", Some(namespace), "admin", "");
        role["subjects"] =
            json!([{"kind": "ServiceAccount", "name": "deployer", "namespace": user}]);
        put(cluster, &[role]).await;
    }
    put(cluster, &impersonator(user, "deployer")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_service_account_of_the_class_installs_nothing_in_a_recreated_namespace() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, home, witness) = ("rehoused", "rehoused-home", "rehoused-witness");
    tenant(&cluster, user, &json!([])).await;
    let mut class = json!({"targets": {"namespaces": [user, home]}});
    delegate_with(&cluster, user, user, &class).await;
    put(&cluster, &[namespace(home)]).await;
    let reference = publish(&cluster, user, &[note(home, "one")]).await;
    write_spec(&cluster, (user, user), &reference, &json!({})).await;
    let other = publish(&cluster, witness, &[note(user, "witness")]).await;
    write_spec(&cluster, (user, witness), &other, &json!({})).await;
    for name in [user, witness] {
        until(&cluster, name, "Installed", "True").await;
    }
    recreate(&cluster, home).await;
    until_message(&cluster, user, REPORT).await;

    // The class names another ServiceAccount, so the content of both BundleDeployments is installed
    // again without a write of their specs.
    create_deployer(&cluster, user, home).await;
    class["serviceAccount"] = json!({"namespace": user, "name": "deployer"});
    delegate_with(&cluster, user, user, &class).await;
    wait::until_true(LONG, "the other content is installed again", || async {
        check_absent(&cluster, home).await;
        let found = get(&cluster, &format!("bundledeployment {witness}")).await;
        let status = found.unwrap_or_default()["status"].clone();
        anyhow::ensure!(status["installed"]["as"]["name"] == "deployer", "{status}");
        Ok(true)
    })
    .await
    .unwrap();
    // The annotation starts another reconcile. The wait for the other object gives this reconcile
    // time to run.
    let line = format!("annotate bundledeployment {user} asked=again");
    try_kubectl(&cluster, &line).await.success().unwrap();
    let line = format!("delete configmap witness -n {user}");
    try_kubectl(&cluster, &line).await.success().unwrap();
    wait::until_true(LONG, "the other object is restored", || async {
        check_absent(&cluster, home).await;
        let found = get(&cluster, &format!("configmap witness -n {user}")).await;
        Ok(found.is_some())
    })
    .await
    .unwrap();
    until_message(&cluster, user, REPORT).await;
    until_message(&cluster, user, "BUNDLE-INSTALL-034").await;

    let changed = json!({"rollout": {"history": 3}});
    write_spec(&cluster, (user, user), &reference, &changed).await;
    until_installed(&cluster, user, home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_return_installs_nothing_in_a_recreated_namespace() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, home, missing) = ("reborn-return", "reborn-return-home", "reborn-return-gone");
    tenant(&cluster, user, &json!([])).await;
    let class = json!({"targets": {"namespaces": [home, missing]}});
    delegate_with(&cluster, user, user, &class).await;
    put(&cluster, &[namespace(home)]).await;
    // The namespace is recreated before this deadline.
    let back = json!({"rollout": {"deadline": "45s", "onFailure": "RollBack"}});
    let one = publish(&cluster, "reborn-return:1.0.0", &[note(home, "one")]).await;
    write_spec(&cluster, (user, user), &one, &back).await;
    until(&cluster, user, "Ready", "True").await;

    // The new content is never applied, because one of its namespaces does not exist.
    let mut changed = note(home, "one");
    changed["data"]["a"] = "changed".into();
    let objects = [changed, note(missing, "two")];
    let two = publish(&cluster, "reborn-return:2.0.0", &objects).await;
    write_spec(&cluster, (user, user), &two, &back).await;
    until_message(&cluster, user, "create the namespace").await;
    recreate(&cluster, home).await;

    until_return_rejected(&cluster, user, home).await;
    write_spec(&cluster, (user, user), &one, &json!({})).await;
    until_installed(&cluster, user, home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_return_installs_nothing_in_a_recreated_namespace_without_installed_objects() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, home) = ("reborn-pruned", "reborn-pruned-home");
    tenant(&cluster, user, &json!([])).await;
    let class = json!({"targets": {"namespaces": [user, home]}});
    delegate_with(&cluster, user, user, &class).await;
    put(&cluster, &[namespace(home)]).await;
    // The namespace is recreated before this deadline.
    let back = json!({"rollout": {"deadline": "45s", "onFailure": "RollBack"}});
    let objects = [note(home, "one"), note(user, "two")];
    let one = publish(&cluster, "reborn-pruned:1.0.0", &objects).await;
    write_spec(&cluster, (user, user), &one, &back).await;
    until(&cluster, user, "Ready", "True").await;

    // The new content has no object in the namespace. The content is applied completely, but never
    // becomes healthy, because the cluster has no node.
    let unready = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "unready", "namespace": user},
        "spec": {
            "selector": {"matchLabels": {"app": "unready"}},
            "template": {
                "metadata": {"labels": {"app": "unready"}},
                "spec": {"containers": [{"name": "unready", "image": "example.com/unready:1"}]},
            },
        },
    });
    let objects = [note(user, "two"), unready];
    let two = publish(&cluster, "reborn-pruned:2.0.0", &objects).await;
    write_spec(&cluster, (user, user), &two, &back).await;
    wait::until_true(LONG, "the former object is pruned", || async {
        let one = get(&cluster, &format!("configmap one -n {home}")).await;
        Ok(one.is_none())
    })
    .await
    .unwrap();
    until(&cluster, user, "Installed", "True").await;
    recreate(&cluster, home).await;

    until_return_rejected(&cluster, user, home).await;
    let downgrade = json!({"rollout": {"allowDowngrade": true}});
    write_spec(&cluster, (user, user), &one, &downgrade).await;
    until_installed(&cluster, user, home).await;
}
