//! Namespaces that are objects of the content, or that were adopted. A namespace is deleted only if
//! it contains no objects of other owners. `created_namespace` tests `spec.createNamespace`.

use super::{remove, until_removed};
use crate::scenarios::requester::*;

/// Creates a tenant with permission to write Namespaces and ConfigMaps.
async fn owner(cluster: &Cluster, user: &str) {
    let verbs = json!(["get", "create", "patch", "update", "delete"]);
    let rules =
        json!([{"apiGroups": [""], "resources": ["namespaces", "configmaps"], "verbs": verbs}]);
    tenant(cluster, user, &rules).await;
}

async fn until_gone(cluster: &Cluster, what: &str) {
    wait::until_true(LONG, &format!("{what} is gone"), || async {
        Ok(get(cluster, what).await.is_none())
    })
    .await
    .unwrap();
}

/// Checks that the Namespace exists, is not in deletion, and has no owner label.
async fn check_released(cluster: &Cluster, name: &str) {
    let found = get(cluster, &format!("namespace {name}")).await.unwrap();
    let metadata = &found["metadata"];
    assert_eq!(metadata["deletionTimestamp"], Value::Null, "{metadata}");
    let label = &metadata["labels"]["core.rukpak.io/owner-name"];
    assert_eq!(*label, Value::Null, "{metadata}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_of_the_content_with_foreign_objects_survives_the_removal() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, occupied, empty) = ("nsrm", "nsrm-used", "nsrm-empty");
    owner(&cluster, user).await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "leader", "namespace": empty},
    });
    let objects = [
        namespace(occupied),
        namespace(empty),
        note(occupied, "own"),
        note(empty, "own"),
    ];
    deploy(&cluster, user, user, &objects, &json!({})).await;
    until(&cluster, user, "Installed", "True").await;
    // The Lease of a leader election does not prevent the deletion of its namespace, because the
    // Lease contains no user data.
    put(&cluster, &[note(occupied, "foreign"), lease]).await;
    remove(&cluster, user).await;
    until_removed(&cluster, user).await;
    until_gone(&cluster, &format!("namespace {empty}")).await;
    until_gone(&cluster, &format!("configmap own -n {occupied}")).await;
    let foreign = format!("configmap foreign -n {occupied}");
    assert!(get(&cluster, &foreign).await.is_some());
    check_released(&cluster, occupied).await;
    let events =
        format!("events -A --field-selector involvedObject.name={user},reason=BUNDLE-INSTALL-062");
    wait::until_true(LONG, "an Event names the kind of the object", || async {
        let events = get(&cluster, &events).await.unwrap_or_default();
        Ok(events.to_string().contains("(kinds: ConfigMap"))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn adopted_namespace_with_foreign_objects_survives_the_removal() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, target) = ("nsadopt", "nsadopt-target");
    owner(&cluster, user).await;
    put(&cluster, &[namespace(target), note(target, "foreign")]).await;
    let objects = [namespace(target), note(target, "own")];
    deploy(
        &cluster,
        user,
        user,
        &objects,
        &json!({"collision": "Adopt"}),
    )
    .await;
    until(&cluster, user, "Installed", "True").await;
    remove(&cluster, user).await;
    until_removed(&cluster, user).await;
    until_gone(&cluster, &format!("configmap own -n {target}")).await;
    let foreign = format!("configmap foreign -n {target}");
    assert!(get(&cluster, &foreign).await.is_some());
    check_released(&cluster, target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_that_an_upgrade_drops_stays_while_it_contains_foreign_objects() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, target) = ("nsprune", "nsprune-target");
    owner(&cluster, user).await;
    let stays = note(user, "stays");
    let objects = [namespace(target), note(target, "own"), stays.clone()];
    deploy(&cluster, user, user, &objects, &json!({})).await;
    until(&cluster, user, "Installed", "True").await;
    put(&cluster, &[note(target, "foreign")]).await;
    let fewer = publish(&cluster, "nsprune-fewer", &[stays]).await;
    let upgraded = apply_as(&cluster, &deployment(user, &fewer, &json!({})), Some(user)).await;
    upgraded.success().unwrap();
    until_gone(&cluster, &format!("configmap own -n {target}")).await;
    wait::until_true(LONG, "a warning names the namespace", || async {
        let found = get(&cluster, &format!("bundledeployment {user}")).await;
        let warnings = found.unwrap_or_default()["status"]["warnings"].to_string();
        Ok(warnings.contains(&format!("Namespace/{target}"))
            && warnings.contains("(kinds: ConfigMap"))
    })
    .await
    .unwrap();
    let found = get(&cluster, &format!("namespace {target}")).await.unwrap();
    assert_eq!(found["metadata"]["deletionTimestamp"], Value::Null);
}
