//! Permissions that are withdrawn after admission.

use crate::scenarios::requester::*;

async fn delete(cluster: &Cluster, what: &str) {
    try_kubectl(cluster, &format!("delete {what}"))
        .await
        .success()
        .unwrap();
}

/// Deploys content that is not in the registry yet, and waits until the pod has reported the
/// missing content.
async fn deploy_ahead(cluster: &Cluster, user: &str, more: &Value) {
    let reference = cluster
        .registry(0)
        .unwrap()
        .reference(&format!("{user}:late"));
    let object = deployment(user, &reference, more);
    apply_as(cluster, &object, Some(user))
        .await
        .success()
        .unwrap();
    until(cluster, user, "HasValidBundle", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_appears_after_use_of_the_class_was_withdrawn_is_not_installed() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "unused", &json!([])).await;
    deploy_ahead(&cluster, "unused", &json!({})).await;
    delete(&cluster, "clusterrolebinding unused-user").await;
    publish(&cluster, "unused:late", &[note("unused", "one")]).await;
    let why = until_withdrawn(&cluster, "unused").await;
    assert!(why.contains("use") && why.contains(CLASS), "{why}");
    assert_eq!(get(&cluster, "configmap one -n unused").await, None);
    put(
        &cluster,
        &[binding("unused-user", None, "bundle-user", "unused")],
    )
    .await;
    until(&cluster, "unused", "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_appears_after_impersonate_was_withdrawn_is_not_installed() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "detached", &json!([])).await;
    let act = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["deployer"], "verbs": ["impersonate"]}]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": "detached"}});
    let mut own = binding("deployer", Some("detached"), "admin", "");
    own["subjects"] =
        json!([{"kind": "ServiceAccount", "name": "deployer", "namespace": "detached"}]);
    put(
        &cluster,
        &[account, own, cluster_role("detached-act", &act)],
    )
    .await;
    put(&cluster, &impersonator("detached", "deployer")).await;
    // The ClusterRole `admin` includes the verb `impersonate`. The new role does not include this
    // verb.
    delete(&cluster, "rolebinding tenant-admin -n detached").await;
    let edit = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch", "delete", "get"]}]);
    put(
        &cluster,
        &[
            cluster_role("detached-edit", &edit),
            binding(
                "detached-edit",
                Some("detached"),
                "detached-edit",
                "detached",
            ),
            binding("detached-act", Some("detached"), "detached-act", "detached"),
        ],
    )
    .await;
    let more = json!({"serviceAccount": {"namespace": "detached", "name": "deployer"}});
    deploy_ahead(&cluster, "detached", &more).await;
    delete(&cluster, "rolebinding detached-act -n detached").await;
    publish(&cluster, "detached:late", &[note("detached", "one")]).await;
    let why = until_withdrawn(&cluster, "detached").await;
    assert!(
        why.contains("impersonate") && why.contains("deployer"),
        "{why}"
    );
    assert_eq!(get(&cluster, "configmap one -n detached").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_object_is_not_restored_while_its_requester_lacks_permissions() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "former", &json!([])).await;
    let objects = [note("former", "one"), note("former", "two")];
    deploy(&cluster, "former", "former", &objects, &json!({})).await;
    until(&cluster, "former", "Installed", "True").await;
    delete(&cluster, "rolebinding tenant-admin -n former").await;
    delete(&cluster, "configmap one -n former").await;
    let why = until_withdrawn(&cluster, "former").await;
    assert!(why.contains("configmaps"), "{why}");
    // After the permissions are withdrawn, drift of existing objects is not corrected, because a
    // correction is also a change.
    let edit = [
        "patch",
        "configmap",
        "two",
        "-n",
        "former",
        "--type=merge",
        "-p",
        r#"{"data":{"a":"changed"}}"#,
    ];
    cluster.kubectl(edit).await.unwrap().success().unwrap();
    wait::until_true(LONG, "both are reported", || async {
        let found = get(&cluster, "bundledeployment former")
            .await
            .unwrap_or_default();
        Ok(found["status"]["drift"]
            .as_array()
            .is_some_and(|drift| drift.len() == 2))
    })
    .await
    .unwrap();
    assert_eq!(get(&cluster, "configmap one -n former").await, None);
    let two = get(&cluster, "configmap two -n former").await.unwrap();
    assert_eq!(two["data"]["a"], "changed");
    let object = get(&cluster, "bundledeployment former").await.unwrap();
    assert_eq!(condition(&object, "Installed")["status"], "True");

    put(
        &cluster,
        &[binding("tenant-admin", Some("former"), "admin", "former")],
    )
    .await;
    until(&cluster, "former", "Authorized", "True").await;
    wait::until_true(LONG, "both are restored", || async {
        let one = get(&cluster, "configmap one -n former").await;
        let two = get(&cluster, "configmap two -n former")
            .await
            .unwrap_or_default();
        Ok(one.is_some() && two["data"]["a"] == "b")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_settings_after_permissions_were_withdrawn_change_nothing() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "settled", &json!([])).await;
    deploy(
        &cluster,
        "settled",
        "settled",
        &[note("settled", "one")],
        &json!({}),
    )
    .await;
    until(&cluster, "settled", "Installed", "True").await;
    delete(&cluster, "rolebinding tenant-admin -n settled").await;
    delete(&cluster, "configmap one -n settled").await;
    until_withdrawn(&cluster, "settled").await;
    // A change of a setting does not cause an installation as the tenant.
    let reference = publish(&cluster, "settled", &[note("settled", "one")]).await;
    let more = json!({"deletion": {"objects": "Orphan"}});
    let edited = apply_as(
        &cluster,
        &deployment("settled", &reference, &more),
        Some("settled"),
    )
    .await;
    edited.success().unwrap();
    until_withdrawn(&cluster, "settled").await;
    assert_eq!(get(&cluster, "configmap one -n settled").await, None);
    // After the permissions are withdrawn, other content of the same tenant is not installed.
    let other = publish(&cluster, "settled-other", &[note("settled", "other")]).await;
    let upgraded = deployment("settled", &other, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some("settled")).await;
    upgraded.success().unwrap();
    let why = until_refused(&cluster, "settled").await;
    assert!(why.contains("configmaps"), "{why}");
    assert_eq!(get(&cluster, "configmap other -n settled").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_permissions_are_reported_once_without_another_change() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let options = WebhookOptions {
        flags: vec!["--rights-check-interval".to_owned(), "2s".to_owned()],
        ..WebhookOptions::default()
    };
    let _webhook = cluster.start_webhook(options).await.unwrap();
    tenant(&cluster, "watched", &json!([])).await;
    deploy(
        &cluster,
        "watched",
        "watched",
        &[note("watched", "one")],
        &json!({}),
    )
    .await;
    until(&cluster, "watched", "Installed", "True").await;
    delete(&cluster, "rolebinding tenant-admin -n watched").await;
    until_withdrawn(&cluster, "watched").await;
    assert!(get(&cluster, "configmap one -n watched").await.is_some());
    put(
        &cluster,
        &[binding("tenant-admin", Some("watched"), "admin", "watched")],
    )
    .await;
    until(&cluster, "watched", "Authorized", "True").await;
    delete(&cluster, "clusterrolebinding watched-user").await;
    until_withdrawn(&cluster, "watched").await;
    wait::until_true(LONG, "the second Event", || async {
        Ok(events_about(&cluster, "watched").await >= 2)
    })
    .await
    .unwrap();
    assert_eq!(events_about(&cluster, "watched").await, 2);
}

/// Returns the number of Events for withdrawn permissions, including repetitions in a series.
async fn events_about(cluster: &Cluster, name: &str) -> u64 {
    let events = get(cluster, "events.events.k8s.io -A").await.unwrap();
    let events = events["items"].as_array().unwrap().iter().filter(|event| {
        event["regarding"]["name"] == name && event["reason"] == "BUNDLE-INSTALL-030"
    });
    events
        .map(|event| event["series"]["count"].as_u64().unwrap_or(1))
        .sum()
}
