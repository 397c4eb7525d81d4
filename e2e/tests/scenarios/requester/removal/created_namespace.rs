//! `spec.createNamespace`: a missing target namespace is created. The created namespace is deleted
//! only if it contains no objects of other owners. `sources::target` tests objects without
//! namespace.

use super::{remove, until_removed};
use crate::scenarios::requester::*;

/// Returns a ConfigMap without namespace.
fn settings() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}})
}

fn into(target: &str) -> Value {
    json!({"targetNamespace": target, "createNamespace": true})
}

/// Grants `user` permission to write ConfigMaps in all namespaces, and to create Namespaces if
/// `creates` is `true`.
async fn creator(cluster: &Cluster, user: &str, creates: bool) {
    let verbs = json!(["get", "create", "patch", "update", "delete"]);
    let namespaces = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": verbs});
    let more = if creates {
        vec![namespaces]
    } else {
        Vec::new()
    };
    creator_with(cluster, user, more).await;
}

async fn creator_with(cluster: &Cluster, user: &str, more: Vec<Value>) {
    let verbs = json!(["get", "create", "patch", "update", "delete"]);
    let mut rules = vec![json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs})];
    rules.extend(more);
    tenant(cluster, user, &json!(rules)).await;
}

async fn until_gone(cluster: &Cluster, what: &str) {
    wait::until_true(LONG, &format!("{what} is gone"), || async {
        Ok(get(cluster, what).await.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_target_namespace_is_created_and_removed_when_empty() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, target) = ("createns-empty", "createns-empty-target");
    creator(&cluster, user, true).await;
    let reference = publish(&cluster, user, &[settings()]).await;
    // The message names the next step while the namespace is missing.
    let plain = deployment(user, &reference, &json!({"targetNamespace": target}));
    let written = apply_as(&cluster, &plain, Some(user)).await;
    written.success().unwrap();
    let found = wait::until(LONG, "the hint is given", || async {
        let object = get(&cluster, &format!("bundledeployment {user}")).await;
        let object = object.unwrap_or_default();
        let found = condition(&object, "Installed").to_string();
        if found.contains("spec.createNamespace: true") {
            return Ok(Some(found));
        }
        anyhow::bail!("{}", object["status"]["conditions"])
    });
    assert!(found.await.unwrap().contains(target));
    let asked = deployment(user, &reference, &into(target));
    let written = apply_as(&cluster, &asked, Some(user)).await;
    written.success().unwrap();
    until(&cluster, user, "Installed", "True").await;
    let config = format!("configmap settings -n {target}");
    assert!(get(&cluster, &config).await.is_some());
    let namespace = format!("namespace {target}");
    let created = get(&cluster, &namespace).await.unwrap();
    assert_eq!(
        created["metadata"]["labels"]["core.rukpak.io/owner-name"],
        user
    );
    // Kubernetes creates its own objects in the namespace. These objects do not prevent the
    // deletion of the namespace.
    let line = format!("wait --for=create serviceaccount/default -n {target} --timeout=60s");
    try_kubectl(&cluster, &line).await.success().unwrap();
    remove(&cluster, user).await;
    until_removed(&cluster, user).await;
    until_gone(&cluster, &namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn created_namespace_with_foreign_objects_stays() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, target) = ("createns-used", "createns-used-target");
    creator(&cluster, user, true).await;
    deploy(&cluster, user, user, &[settings()], &into(target)).await;
    until(&cluster, user, "Installed", "True").await;
    put(&cluster, &[note(target, "foreign")]).await;
    remove(&cluster, user).await;
    until_removed(&cluster, user).await;
    until_gone(&cluster, &format!("configmap settings -n {target}")).await;
    let foreign = format!("configmap foreign -n {target}");
    assert!(get(&cluster, &foreign).await.is_some());
    let left = get(&cluster, &format!("namespace {target}")).await.unwrap();
    let metadata = &left["metadata"];
    assert_eq!(metadata["deletionTimestamp"], Value::Null, "{metadata}");
    assert_eq!(
        metadata["labels"]["core.rukpak.io/owner-name"],
        Value::Null,
        "{metadata}"
    );
    let look =
        format!("events -A --field-selector involvedObject.name={user},reason=BUNDLE-INSTALL-062");
    wait::until_true(LONG, "an Event names the kind of the object", || async {
        let events = get(&cluster, &look).await.unwrap_or_default();
        Ok(events.to_string().contains("(kinds: ConfigMap"))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_target_namespace_is_neither_written_nor_removed() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, target) = ("createns-there", "createns-there-target");
    // The user has no permission to create namespaces, but can read existing namespaces.
    let read = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]});
    creator_with(&cluster, user, vec![read]).await;
    put(&cluster, &[namespace(target)]).await;
    let what = format!("namespace {target}");
    let before = get(&cluster, &what).await.unwrap();
    let mut more = into(target);
    more["collision"] = "Adopt".into();
    deploy(&cluster, user, user, &[settings()], &more).await;
    until(&cluster, user, "Installed", "True").await;
    remove(&cluster, user).await;
    until_removed(&cluster, user).await;
    until_gone(&cluster, &format!("configmap settings -n {target}")).await;
    let after = get(&cluster, &what).await.unwrap();
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn requester_without_permission_to_create_namespaces_gets_none() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, target) = ("createns-denied", "createns-denied-target");
    creator(&cluster, user, false).await;
    deploy(&cluster, user, user, &[settings()], &into(target)).await;
    let message = until_refused(&cluster, user).await;
    assert!(
        message.contains(r#"resources: ["namespaces"]"#),
        "{message}"
    );
    assert_eq!(get(&cluster, &format!("namespace {target}")).await, None);
    // The message is the same if the namespace exists. A user without permission to read the
    // namespace must not obtain this information.
    let hidden = "createns-hidden-target";
    put(&cluster, &[namespace(hidden)]).await;
    deploy(
        &cluster,
        user,
        "createns-hidden",
        &[settings()],
        &into(hidden),
    )
    .await;
    let other = until_refused(&cluster, "createns-hidden").await;
    assert_eq!(other.replace(hidden, target), message);
    // `createNamespace` requires `targetNamespace`.
    let reference = publish(&cluster, user, &[settings()]).await;
    let unnamed = json!({"createNamespace": true});
    let unnamed = deployment("createns-unnamed", &reference, &unnamed);
    let written = apply_as(&cluster, &unnamed, None).await;
    let error = written.failure(1).unwrap();
    assert!(error.contains("BUNDLE-REVIEW-062"), "{error}");
}
