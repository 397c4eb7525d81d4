//! Records that another user can change between a read and a write: times in `managedFields`, the
//! inventory of an incomplete installation, and settings of a deployment during its approval.
//! `stamps` tests stamps and seals after gaps in the registrations.

use super::classes::{delegate_with, under};
use super::*;

mod installed_objects;
mod intents;

/// Seconds after which an earlier write is too old for a stamp.
const WINDOW: i64 = 7;

async fn patch(cluster: &Cluster, name: &str, patch: &Value, flags: &[&str]) {
    let text = format!("--patch={patch}");
    let mut line = vec!["patch", "bundledeployment", name, "--type=merge", &text];
    line.extend(flags);
    cluster.kubectl(line).await.unwrap().success().unwrap();
}

/// Deploys a ConfigMap as the tenant `user`, with a BundleDeployment of the same name.
async fn installed(cluster: &Cluster, user: &str) {
    tenant(cluster, user, &json!([])).await;
    deploy(cluster, user, user, &[note(user, "one")], &json!({})).await;
    until(cluster, user, "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_is_sealed_after_its_managed_fields_were_emptied() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "records-emptied";
    installed(&cluster, user).await;
    let emptied = json!({"metadata": {"managedFields": [{}]}});
    patch(&cluster, user, &emptied, &["--as=records-emptied"]).await;
    let report = json!({"spec": {"drift": {"mode": "Report"}}});
    patch(&cluster, user, &report, &["--as=records-emptied"]).await;
    until(&cluster, user, "Ready", "True").await;
    try_kubectl(
        &cluster,
        &format!("delete bundledeployment {user} --timeout=60s"),
    )
    .await
    .success()
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_removes_the_only_field_of_its_manager_is_sealed() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "records-vanished";
    installed(&cluster, user).await;
    let flags = ["--field-manager=records-once", "--as=records-vanished"];
    let report = json!({"spec": {"drift": {"mode": "Report"}}});
    patch(&cluster, user, &report, &flags).await;
    until(&cluster, user, "Ready", "True").await;
    let end = jiff::Timestamp::now().as_second() + WINDOW;
    wait::until_true(LONG, "all entries are old", || async move {
        Ok(jiff::Timestamp::now().as_second() > end)
    })
    .await
    .unwrap();
    patch(&cluster, user, &json!({"spec": {"drift": null}}), &flags).await;
    until(&cluster, user, "Ready", "True").await;
}

/// Returns a CRD of the kind `Foo`. An API group can have only one CRD of this kind.
fn foos(plural: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.records.example.com")},
        "spec": {
            "group": "records.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn object_of_an_installation_that_is_not_complete_is_not_adopted() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let home = "records-begun";
    put(&cluster, &[namespace(home), foos("foos")]).await;
    try_kubectl(
        &cluster,
        "wait crd/foos.records.example.com --for=condition=Established --timeout=60s",
    )
    .await
    .success()
    .unwrap();
    // Another CRD already defines the kind, so the new CRD is never established.
    let first = [note(home, "one"), foos("bars")];
    let reference = publish(&cluster, "records-first", &first).await;
    put(
        &cluster,
        &[deployment("records-first", &reference, &json!({}))],
    )
    .await;
    wait::until_true(LONG, "the first one has created the ConfigMap", || async {
        Ok(get(&cluster, "configmap one -n records-begun")
            .await
            .is_some())
    })
    .await
    .unwrap();

    let reference = publish(&cluster, "records-second", &[note(home, "one")]).await;
    let adopts = json!({"collision": "Adopt"});
    put(
        &cluster,
        &[deployment("records-second", &reference, &adopts)],
    )
    .await;
    until(&cluster, "records-second", "Installed", "False").await;
    wait::until_true(LONG, "the second one names the first", || async {
        let found = get(&cluster, "bundledeployment records-second").await;
        let conditions = found.unwrap_or_default()["status"]["conditions"].to_string();
        assert!(
            !conditions.contains("\"InstallationSucceeded\""),
            "{conditions}"
        );
        Ok(conditions.contains("BundleDeployment records-first"))
    })
    .await
    .unwrap();
    for line in [
        "delete bundledeployment records-second records-first --wait=false",
        "delete crd foos.records.example.com",
    ] {
        try_kubectl(&cluster, line).await.success().unwrap();
    }
}

/// Creates, as `user`, an approval of the content of `reference` for the BundleDeployment `name`.
/// `read` is the generation that the author has read.
async fn approve(
    cluster: &Cluster,
    (user, name): (&str, &str),
    reference: &str,
    read: Option<&Value>,
) -> e2e::Output {
    let found = get(cluster, &format!("bundledeployment {name}")).await;
    let uid = found.unwrap_or_default()["metadata"]["uid"].clone();
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleApproval",
        "metadata": {"name": format!("{name}-{user}")},
        "spec": {"bundleDeployment": {"name": name, "uid": uid}, "digest": reference.rsplit('@').next()},
    });
    if let Some(read) = read {
        object["spec"]["bundleDeployment"]["generation"] = read["metadata"]["generation"].clone();
    }
    apply_as(cluster, &object, Some(user)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_is_for_the_settings_that_its_author_has_read() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, cora, ben) = ("records-ana", "records-cora", "records-ben");
    tenant(&cluster, user, &json!([])).await;
    let gated = json!({"approval": {"mode": "Required", "by": "AnotherPerson"}, "targets": {"namespaces": [user]}});
    delegate_with(&cluster, "records-gated", user, &gated).await;
    put(
        &cluster,
        &[
            binding("records-cora", None, "cluster-admin", cora),
            binding("records-ben", None, "cluster-admin", ben),
        ],
    )
    .await;
    let reference = publish(&cluster, user, &[note(user, "one")]).await;
    let object = under("records-gated", deployment(user, &reference, &json!({})));
    apply_as(&cluster, &object, Some(user))
        .await
        .success()
        .unwrap();
    until(&cluster, user, "Approved", "False").await;
    let line = format!("bundledeployment {user}");
    let plain = get(&cluster, &line).await.unwrap_or_default();

    // Another user changes a setting that no approver has read.
    let adopt = json!({"spec": {"collision": "Adopt"}});
    patch(&cluster, user, &adopt, &["--as=records-cora"]).await;
    for read in [None, Some(&plain)] {
        let tried = approve(&cluster, (ben, user), &reference, read).await;
        let refused = tried.failure(1).unwrap();
        assert!(refused.contains("BUNDLE-REVIEW-026"), "{refused}");
    }
    // The author of the change cannot approve the change, because the approver must be another
    // person.
    let read = get(&cluster, &line).await.unwrap_or_default();
    let by_cora = approve(&cluster, (cora, user), &reference, Some(&read)).await;
    by_cora.success().unwrap();
    let what = "bundleapproval records-ana-records-cora";
    let accepted = until_condition(&cluster, what, "Accepted", "False").await;
    assert_eq!(accepted["reason"], "SelfApproval", "{accepted}");
    assert_eq!(get(&cluster, "configmap one -n records-ana").await, None);
    let by_ben = approve(&cluster, (ben, user), &reference, Some(&read)).await;
    by_ben.success().unwrap();
    until(&cluster, user, "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_restored_in_a_namespace_that_is_being_deleted_or_was_recreated() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let (user, home) = ("records-remade", "records-remade-home");
    tenant(&cluster, user, &json!([])).await;
    let targets = json!({"targets": {"namespaces": [home]}});
    delegate_with(&cluster, user, user, &targets).await;
    // A finalizer delays the deletion of the namespace.
    let mut held = note(home, "held");
    held["metadata"]["finalizers"] = json!(["records.example.com/held"]);
    put(&cluster, &[namespace(home), held]).await;
    let reference = publish(&cluster, user, &[note(home, "one")]).await;
    let object = under(user, deployment(user, &reference, &json!({})));
    apply_as(&cluster, &object, Some(user))
        .await
        .success()
        .unwrap();
    until(&cluster, user, "Installed", "True").await;
    let line = format!("delete namespace {home} --wait=false");
    try_kubectl(&cluster, &line).await.success().unwrap();
    let until_message = async |text: &str| {
        wait::until_true(LONG, text, || async {
            let found = get(&cluster, &format!("bundledeployment {user}")).await;
            let conditions = found.unwrap_or_default()["status"]["conditions"].to_string();
            anyhow::ensure!(conditions.contains(text), "{conditions}");
            Ok(true)
        })
        .await
        .unwrap();
    };
    until_message("wait until its deletion has ended").await;

    let line = format!(
        "patch configmap held -n {home} --type=merge --patch={{\"metadata\":{{\"finalizers\":null}}}}"
    );
    try_kubectl(&cluster, &line).await.success().unwrap();
    let line = format!("create namespace {home}");
    wait::until_true(LONG, "the namespace is created again", || async {
        Ok(try_kubectl(&cluster, &line).await.is_success())
    })
    .await
    .unwrap();
    until_message("was deleted and created again").await;
    let one = get(&cluster, &format!("configmap one -n {home}")).await;
    assert_eq!(one, None);
}
