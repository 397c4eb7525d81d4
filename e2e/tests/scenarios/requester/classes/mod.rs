//! Limits of a class with `authorization: Class`: objects outside of its targets, ServiceAccounts
//! without permission, and recreated namespaces. `withdrawn` tests `authorization: Requester`.

use super::removal::{remove, until_kept, until_removed};
use super::*;

mod bundle_class;
pub(super) mod class_change;
mod recreated;

/// Creates the class `name` with `authorization: Class` and these target namespaces, and grants
/// `user` the verb `use` on the class.
async fn delegate(cluster: &Cluster, name: &str, user: &str, namespaces: &[&str]) {
    delegate_with(
        cluster,
        name,
        user,
        &json!({"targets": {"namespaces": namespaces}}),
    )
    .await;
}

/// Creates the class `name` with `authorization: Class` and more fields, and grants `user` the verb
/// `use` on the class.
pub(super) async fn delegate_with(cluster: &Cluster, name: &str, user: &str, more: &Value) {
    let mut class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "ProvisionerClass",
        "metadata": {"name": name},
        "spec": {
            "provisioner": "core.rukpak.io/plain",
            "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
            "authorization": "Class",
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        class["spec"][key] = value.clone();
    }
    let rules = json!([{"apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"], "resourceNames": [name], "verbs": ["use"]}]);
    let role = cluster_role(name, &rules);
    put(cluster, &[class, role, binding(name, None, name, user)]).await;
}

pub(super) fn under(class: &str, mut deployment: Value) -> Value {
    deployment["spec"]["provisionerClassName"] = class.into();
    deployment["spec"]["template"]["spec"]["provisionerClassName"] = class.into();
    deployment
}

/// Waits until `user` no longer has this permission.
pub(super) async fn until_permission_denied(cluster: &Cluster, user: &str, what: &str) {
    let line = format!("auth can-i {what} --as={user}");
    wait::until_true(LONG, &format!("{user} may not {what}"), || async {
        Ok(try_kubectl(cluster, &line).await.stdout.trim() == "no")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn class_authorization_does_not_cover_objects_outside_of_its_targets() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "delegated";
    tenant(&cluster, user, &json!([])).await;
    put(
        &cluster,
        &[
            namespace("delegated-shared"),
            binding("delegated", Some("delegated-shared"), "admin", user),
        ],
    )
    .await;
    let objects = [
        note(user, "own"),
        note(user, "stays"),
        note("delegated-shared", "one"),
        note("delegated-shared", "two"),
    ];
    deploy(&cluster, user, user, &objects, &json!({})).await;
    until(&cluster, user, "Installed", "True").await;

    // The new class has the same ServiceAccount. The user has no permissions of their own.
    delegate(&cluster, "delegated-own", user, &[user]).await;
    let reference = publish(&cluster, user, &objects).await;
    let switched = under("delegated-own", deployment(user, &reference, &json!({})));
    apply_as(&cluster, &switched, Some(user))
        .await
        .success()
        .unwrap();
    let reported = until(&cluster, user, "Installed", "False").await;
    assert!(
        reported.to_string().contains("delegated-shared"),
        "{reported}"
    );
    try_kubectl(&cluster, "delete rolebinding tenant-admin -n delegated").await;
    try_kubectl(&cluster, "delete rolebinding delegated -n delegated-shared").await;
    until_permission_denied(&cluster, user, "delete configmaps -n delegated-shared").await;
    until_permission_denied(&cluster, user, "delete configmaps -n delegated").await;

    // The new class does not cover objects of the former class: the permissions of the requester
    // are checked.
    try_kubectl(&cluster, "delete configmap own -n delegated").await;
    until_withdrawn(&cluster, user).await;
    assert_eq!(get(&cluster, "configmap own -n delegated").await, None);
    try_kubectl(&cluster, "delete configmap one -n delegated-shared").await;
    wait::until_true(
        LONG,
        "the permissions in the other namespace are reported",
        || async {
            let reported = until_withdrawn(&cluster, user).await;
            anyhow::ensure!(reported.contains("delegated-shared"), "{reported}");
            Ok(true)
        },
    )
    .await
    .unwrap();
    let one = get(&cluster, "configmap one -n delegated-shared").await;
    assert_eq!(one, None);

    // Content within the targets of the class is installed. Objects outside of the targets are not
    // pruned.
    let fewer = publish(&cluster, "delegated-fewer", &objects[1..2]).await;
    let upgraded = under("delegated-own", deployment(user, &fewer, &json!({})));
    apply_as(&cluster, &upgraded, Some(user))
        .await
        .success()
        .unwrap();
    wait::until_true(LONG, "the remaining objects are reported", || async {
        let found = get(&cluster, "bundledeployment delegated").await;
        let found = found.unwrap_or_default();
        let warnings = found["status"]["warnings"].to_string();
        if warnings.contains("ConfigMap/delegated-shared/two")
            && warnings.contains("delegated has no permission to delete it")
        {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"])
    })
    .await
    .unwrap();
    until(&cluster, user, "Installed", "True").await;
    let two = "configmap two -n delegated-shared";
    assert!(get(&cluster, two).await.is_some());
    assert_eq!(get(&cluster, "configmap own -n delegated").await, None);
    // The class covers the objects that were installed under this class.
    try_kubectl(&cluster, "delete configmap stays -n delegated").await;
    wait::until_true(LONG, "the object of the class is restored", || async {
        let stays = get(&cluster, "configmap stays -n delegated").await;
        Ok(stays.is_some())
    })
    .await
    .unwrap();

    // The removal of the BundleDeployment does not delete the object outside of the targets of the
    // class.
    remove(&cluster, user).await;
    let key = "ConfigMap/delegated-shared/two";
    let reported = until_kept(&cluster, user, (key, two)).await;
    assert!(
        reported.contains("delegated has no permission to delete it"),
        "{reported}"
    );
    assert_eq!(get(&cluster, "configmap stays -n delegated").await, None);
    put(
        &cluster,
        &[binding(
            "delegated",
            Some("delegated-shared"),
            "admin",
            user,
        )],
    )
    .await;
    until_removed(&cluster, user).await;
    assert_eq!(get(&cluster, two).await, None);
}

/// Grants `user` permission to impersonate ServiceAccount `deployer`, to administer namespace
/// `user`, and to write ConfigMaps in namespace `user`.
async fn actor(cluster: &Cluster, user: &str) {
    tenant(cluster, user, &json!([])).await;
    let act = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["deployer"], "verbs": ["impersonate"]}]);
    let edit = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch", "delete", "get"]}]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": user}});
    let mut own = binding("deployer", Some(user), "admin", "");
    own["subjects"] = json!([{"kind": "ServiceAccount", "name": "deployer", "namespace": user}]);
    let (act_role, edit_role) = (format!("{user}-act"), format!("{user}-edit"));
    put(
        cluster,
        &[
            account,
            own,
            cluster_role(&act_role, &act),
            cluster_role(&edit_role, &edit),
            binding(&edit_role, Some(user), &edit_role, user),
            binding(&act_role, Some(user), &act_role, user),
        ],
    )
    .await;
    put(cluster, &impersonator(user, "deployer")).await;
    // The RoleBinding `tenant-admin` also grants the verb `impersonate`, so the RoleBinding is
    // deleted.
    let line = format!("delete rolebinding tenant-admin -n {user}");
    try_kubectl(cluster, &line).await.success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_with_a_service_account_that_the_requester_can_no_longer_impersonate_removes_nothing()
 {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    for (user, class) in [("actor-asked", CLASS), ("actor-delegated", "actor-class")] {
        actor(&cluster, user).await;
        if class != CLASS {
            delegate(&cluster, class, user, &["*"]).await;
        }
        let more = json!({"serviceAccount": {"namespace": user, "name": "deployer"}});
        let reference = publish(&cluster, user, &[note(user, "one")]).await;
        let object = under(class, deployment(user, &reference, &more));
        apply_as(&cluster, &object, Some(user))
            .await
            .success()
            .unwrap();
        until(&cluster, user, "Installed", "True").await;
        let line = format!("delete rolebinding {user}-act -n {user}");
        try_kubectl(&cluster, &line).await.success().unwrap();
        let line = format!("impersonate serviceaccounts/deployer -n {user}");
        until_permission_denied(&cluster, user, &line).await;

        remove(&cluster, user).await;
        let key = format!("ConfigMap/{user}/one");
        let one = format!("configmap one -n {user}");
        let reported = until_kept(&cluster, user, (&key, &one)).await;
        for part in [
            format!("{user} has no permission to impersonate ServiceAccount {user}/deployer"),
            "objects: Orphan".to_owned(),
        ] {
            assert!(reported.contains(&part), "{part} is not in {reported}");
        }
        let act = format!("{user}-act");
        put(&cluster, &[binding(&act, Some(user), &act, user)]).await;
        until_removed(&cluster, user).await;
        assert_eq!(get(&cluster, &one).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn class_authorization_does_not_write_objects_of_the_new_owner_of_a_namespace() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let user = "evicted";
    tenant(&cluster, user, &json!([])).await;
    delegate(&cluster, "evicted-class", user, &["evicted-home"]).await;
    put(&cluster, &[namespace("evicted-home")]).await;
    let reference = publish(&cluster, user, &[note("evicted-home", "one")]).await;
    let adopt = json!({"collision": "Adopt"});
    let object = under("evicted-class", deployment(user, &reference, &adopt));
    apply_as(&cluster, &object, Some(user))
        .await
        .success()
        .unwrap();
    until(&cluster, user, "Installed", "True").await;

    // While the webhook is down, another user recreates namespace and object.
    webhook.kill().unwrap();
    try_kubectl(&cluster, "delete namespace evicted-home")
        .await
        .success()
        .unwrap();
    let mut theirs = note("evicted-home", "one");
    theirs["data"]["a"] = "theirs".into();
    put(&cluster, &[namespace("evicted-home"), theirs]).await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the namespace is named", || async {
        let found = get(&cluster, "bundledeployment evicted").await;
        let found = found.unwrap_or_default();
        let one = get(&cluster, "configmap one -n evicted-home").await;
        let one = one.unwrap_or_default();
        assert_eq!(one["data"]["a"], "theirs", "{found}");
        let reported = condition(&found, "Ready")["message"].to_string();
        if reported.contains("namespace evicted-home was deleted and created again") {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"])
    })
    .await
    .unwrap();
}
