//! Stamps and seals: requesters after gaps in the registrations, copies, backups, edits by other
//! users, and restarts. `bundle_core::review` (`stamp`, `seal`) has the rules.

use std::time::Duration;

use bundle_core::review::template_hash;
use e2e::{Cluster, Webhook, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{apply_with, condition, get, kubectl, try_kubectl, until};

mod bounds;
mod deletions;
mod parallel_writes;

const CLASS: &str = "core-rukpak-io-plain";
const STAMP: &str = "core.rukpak.io/stamp";
const LONG: Duration = Duration::from_secs(90);
/// Seconds after which a stamp is too old for a write.
const STALE: i64 = 16;
const MALLORY: &str = "mallory";

async fn stage() -> (Cluster, Webhook) {
    let builder = Cluster::builder().registries(1);
    let cluster = builder.start().await.unwrap();
    let options = WebhookOptions::default();
    let webhook = cluster.start_webhook(options).await.unwrap();
    kubectl(&cluster, "create namespace team-a").await;
    (cluster, webhook)
}

async fn apply(cluster: &Cluster, object: &Value) {
    apply_with(cluster, object, &[]).await.success().unwrap();
}

async fn by_mallory(cluster: &Cluster, object: &Value) {
    let flag = format!("--as={MALLORY}");
    apply_with(cluster, object, &[&flag])
        .await
        .success()
        .unwrap();
}

fn stamp(object: &Value) -> &str {
    object["metadata"]["annotations"][STAMP].as_str().unwrap()
}

/// Pushes a ConfigMap `name` of namespace `team-a` as a bundle, and returns the reference by tag
/// and the pinned reference.
async fn publish(cluster: &Cluster, name: &str, version: &str) -> (String, String) {
    publish_objects(cluster, name, version, &[note(name, version)]).await
}

async fn publish_objects(
    cluster: &Cluster,
    name: &str,
    version: &str,
    objects: &[Value],
) -> (String, String) {
    let folder = cluster
        .folder()
        .join("data")
        .join(format!("{name}-{version}"));
    bundles::greeting(&folder, version, None).unwrap();
    let documents: Vec<_> = objects.iter().map(ToString::to_string).collect();
    fs_err::write(
        folder.join("manifests/greeting.yaml"),
        documents.join("\n---\n"),
    )
    .unwrap();
    let registry = cluster.registry(0).unwrap();
    let tag = registry.reference(&format!("{name}:{version}"));
    let folder = folder.display().to_string();
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &tag, "--overwrite-tag"])
        .await
        .unwrap();
    let pinned = pushed.success().unwrap().lines().last().unwrap().to_owned();
    (tag, pinned)
}

fn note(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team-a"}, "data": {"text": text}})
}

fn deployment(name: &str, reference: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {
            "provisionerClassName": CLASS,
            "template": {"spec": {
                "provisionerClassName": CLASS,
                "source": {"type": "image", "image": {"ref": reference}},
            }},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// Grants Mallory permission to edit the project's kinds and to use the shipped classes. If `admin`
/// is `true`, also grants permission to administer `team-a`.
async fn tenant(cluster: &Cluster, admin: bool) {
    let subjects =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MALLORY}]);
    let mut roles = vec![
        ("ClusterRoleBinding", "bundle-editor"),
        ("ClusterRoleBinding", "bundle-user"),
    ];
    if admin {
        roles.push(("RoleBinding", "admin"));
    }
    for (kind, role) in roles {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": format!("{MALLORY}-{role}"), "namespace": (kind == "RoleBinding").then_some("team-a")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        });
        apply(cluster, &binding).await;
    }
}

/// Deletes the registrations, so that the API server does not call the webhook.
pub(in crate::scenarios) async fn admission_off(cluster: &Cluster) {
    for kind in ["validating", "mutating"] {
        kubectl(
            cluster,
            &format!("delete {kind}webhookconfiguration bundle-webhook"),
        )
        .await;
    }
    // The API server detects the deletion of the registrations with a delay.
    let probe = deployment("e2e-probe", "Not A Reference", &json!({}));
    wait::until_true(LONG, "the API server asks nobody", || async {
        Ok(apply_with(cluster, &probe, &["--dry-run=server"])
            .await
            .is_success())
    })
    .await
    .unwrap();
}

/// Restores the registrations, and waits until the API server calls the webhook.
pub(in crate::scenarios) async fn admission_on(webhook: &Webhook) {
    webhook.register().await.unwrap();
    webhook.wait_for_admission().await.unwrap();
}

/// Waits until all stamps that exist now are too old for a write.
async fn wait_until_stamps_expire() {
    let end = jiff::Timestamp::now().as_second() + STALE;
    wait::until_true(LONG, "stamps are stale", || async move {
        Ok(jiff::Timestamp::now().as_second() > end)
    })
    .await
    .unwrap();
}

/// Returns the value of the annotation `core.rukpak.io/admit` in a message.
fn admit_token(message: &str) -> String {
    let (_, rest) = message
        .split_once("core.rukpak.io/admit=")
        .unwrap_or_else(|| panic!("no hint in `{message}`"));
    rest.chars()
        .take_while(char::is_ascii_hexdigit)
        .collect::<String>()
}

#[tokio::test(flavor = "multi_thread")]
async fn stamp_obtained_before_a_gap_is_invalid_during_and_after_it() {
    let (cluster, webhook) = stage().await;
    let (_, one) = publish(&cluster, "early", "1.0.0").await;
    let object = deployment("early", &one, &json!({}));
    // A user can obtain a stamp for any object, for example with this dry run.
    let answered = apply_with(
        &cluster,
        &object,
        &["--dry-run=server", "-o", "json", "--show-managed-fields"],
    )
    .await;
    let answered: Value = serde_json::from_str(&answered.success().unwrap()).unwrap();
    let mut stamped = object.clone();
    stamped["metadata"]["annotations"] = json!({STAMP: stamp(&answered)});
    wait_until_stamps_expire().await;
    admission_off(&cluster).await;
    apply(&cluster, &stamped).await;
    let what = "bundledeployment early";
    let why = until(&cluster, what, "Installed", "False").await;
    assert!(why.contains("BUNDLE-REVIEW-025"), "{why}");
    admission_on(&webhook).await;

    // Neither another annotation nor a wrong token admits the BundleDeployment.
    kubectl(
        &cluster,
        "annotate bundledeployment early core.rukpak.io/checked=again",
    )
    .await;
    kubectl(
        &cluster,
        "annotate bundledeployment early core.rukpak.io/admit=0123456789abcdef",
    )
    .await;
    let why = until(&cluster, what, "Installed", "False").await;
    assert_eq!(get(&cluster, "configmap early -n team-a").await, None);
    let heal = format!(
        "annotate --overwrite bundledeployment early core.rukpak.io/admit={}",
        admit_token(&why)
    );
    kubectl(&cluster, &heal).await;
    until(&cluster, what, "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seal_and_stamp_count_for_one_generation_of_one_object() {
    let (cluster, webhook) = stage().await;
    tenant(&cluster, true).await;
    let (_, one) = publish(&cluster, "copied", "1.0.0").await;
    let (_, two) = publish(&cluster, "copied", "2.0.0").await;
    let first = deployment("copied", &one, &json!({}));
    apply(&cluster, &first).await;
    until(&cluster, "bundledeployment copied", "Installed", "True").await;
    let old = get(&cluster, "bundledeployment copied").await.unwrap();
    assert!(
        old["status"]["admission"]["seal"].is_string(),
        "{}",
        old["status"]
    );
    apply(&cluster, &deployment("copied", &two, &json!({}))).await;
    until(&cluster, "bundledeployment copied", "Installed", "True").await;
    wait_until_stamps_expire().await;

    admission_off(&cluster).await;
    // The object is a later generation, with the stamp and the seal of the earlier generation.
    let with = |mut object: Value, from: &Value| {
        object["metadata"]["annotations"] = json!({STAMP: stamp(from)});
        object
    };
    apply(&cluster, &with(first.clone(), &old)).await;
    write_status(&cluster, "copied", &old).await;
    let what = "bundledeployment copied";
    let why = until(&cluster, what, "Ready", "False").await;
    assert!(why.contains("BUNDLE-REVIEW-025"), "{why}");
    let installed = get(&cluster, "configmap copied -n team-a").await.unwrap();
    assert_eq!(installed["data"]["text"], "2.0.0");

    // The BundleDeployment `other` gets the stamp and the seal of the BundleDeployment `copied`.
    let other = deployment("other", &one, &json!({}));
    apply(&cluster, &with(other, &old)).await;
    write_status(&cluster, "other", &old).await;
    let why = until(&cluster, "bundledeployment other", "Ready", "False").await;
    assert!(why.contains("BUNDLE-REVIEW-025"), "{why}");
    admission_on(&webhook).await;
}

/// Writes the status of `from` to the BundleDeployment `name`.
async fn write_status(cluster: &Cluster, name: &str, from: &Value) {
    let patch = json!({"status": from["status"]}).to_string();
    let line = [
        "patch",
        "bundledeployment",
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ];
    cluster.kubectl(line).await.unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_is_reported_and_admitted_per_object() {
    let (cluster, webhook) = stage().await;
    let (_, one) = publish(&cluster, "backup", "1.0.0").await;
    apply(&cluster, &deployment("backup", &one, &json!({}))).await;
    let what = "bundledeployment backup";
    until(&cluster, what, "Installed", "True").await;
    let mut kept = get(&cluster, what).await.unwrap();
    kubectl(&cluster, "delete bundledeployment backup --timeout=60s").await;
    wait_until_stamps_expire().await;
    admission_off(&cluster).await;
    if let Some(metadata) = kept["metadata"].as_object_mut() {
        metadata.retain(|key, _| ["name", "annotations", "labels"].contains(&key.as_str()));
    }
    apply(&cluster, &kept).await;
    write_status(&cluster, "backup", &kept).await;
    admission_on(&webhook).await;
    let why = until(&cluster, what, "Ready", "False").await;
    assert!(why.contains("BUNDLE-REVIEW-025"), "{why}");
    assert_eq!(get(&cluster, "configmap backup -n team-a").await, None);
    let heal = format!(
        "annotate bundledeployment backup core.rukpak.io/admit={}",
        admit_token(&why)
    );
    kubectl(&cluster, &heal).await;
    until(&cluster, what, "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_of_settings_by_an_administrator_keeps_the_requester_of_the_template() {
    let (cluster, _webhook) = stage().await;
    tenant(&cluster, false).await;
    let (_, one) = publish(&cluster, "edited", "1.0.0").await;
    by_mallory(&cluster, &deployment("edited", &one, &json!({}))).await;
    let what = "bundledeployment edited";
    let why = until(&cluster, what, "Installed", "False").await;
    assert!(why.contains("mallory lacks permissions"), "{why}");
    // An administrator changes an annotation and a setting, but not the content.
    kubectl(
        &cluster,
        "annotate bundledeployment edited core.rukpak.io/checked=again",
    )
    .await;
    cluster
        .kubectl([
            "patch",
            "bundledeployment",
            "edited",
            "--type=merge",
            "--patch",
            r#"{"spec":{"drift":{"mode":"Report"}}}"#,
        ])
        .await
        .unwrap()
        .success()
        .unwrap();
    let why = until(&cluster, what, "Installed", "False").await;
    assert!(why.contains("mallory lacks permissions"), "{why}");
    assert_eq!(get(&cluster, "configmap edited -n team-a").await, None);

    tenant(&cluster, true).await;
    until(&cluster, what, "Installed", "True").await;
    let object = get(&cluster, what).await.unwrap();
    assert_eq!(object["status"]["installed"]["requestedBy"], MALLORY);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_created_in_advance_is_not_installed_as_generated_and_blocks_nothing() {
    let (cluster, _webhook) = stage().await;
    tenant(&cluster, true).await;
    let (_, one) = publish(&cluster, "forged", "1.0.0").await;
    apply(&cluster, &deployment("forged", &one, &json!({}))).await;
    let what = "bundledeployment forged";
    until(&cluster, what, "Installed", "True").await;
    let uid = get(&cluster, what).await.unwrap()["metadata"]["uid"].clone();

    // Mallory creates the Bundle of the next template while the tag of the template refers to other
    // content.
    let (tag, _) = publish_objects(&cluster, "forged", "2.0.0", &[note("forged", "evil")]).await;
    let next = deployment("forged", &tag, &json!({}));
    let hash = template_hash(&next["spec"]["template"]);
    let name = format!("forged-{hash}");
    let forged = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {
            "name": name,
            "labels": {
                "core.rukpak.io/owner-kind": "BundleDeployment",
                "core.rukpak.io/owner-name": "forged",
                "core.rukpak.io/bundle-template-hash": hash,
            },
            "ownerReferences": [{"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "name": "forged", "uid": uid, "controller": true}],
        },
        "spec": next["spec"]["template"]["spec"],
    });
    by_mallory(&cluster, &forged).await;
    until(&cluster, &format!("bundle {name}"), "Unpacked", "True").await;
    publish(&cluster, "forged", "2.0.0").await;
    apply(&cluster, &next).await;
    let text = |object: &Value| object["data"]["text"].clone();
    wait::until_true(LONG, "the new content is installed", || async {
        let found = get(&cluster, "configmap forged -n team-a").await;
        let found = found.as_ref().map(text).unwrap_or_default();
        assert_ne!(found, "evil");
        Ok(found == "2.0.0")
    })
    .await
    .unwrap();
    until(&cluster, what, "Installed", "True").await;
    let active = get(&cluster, what).await.unwrap()["status"]["activeBundle"].clone();
    assert_ne!(active, name.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_counts_only_for_the_account_and_configuration_that_were_approved() {
    let (cluster, _webhook) = stage().await;
    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "ProvisionerClass",
        "metadata": {"name": "reviewed"},
        "spec": {
            "provisioner": "core.rukpak.io/plain",
            "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
            "approval": {"mode": "Required", "by": "Anyone"},
        },
    });
    apply(&cluster, &class).await;
    kubectl(&cluster, "create serviceaccount deployer -n team-a").await;
    kubectl(
        &cluster,
        "create rolebinding deployer -n team-a --clusterrole=admin --serviceaccount=team-a:deployer",
    )
    .await;
    let pod = "bundle-system:bundle-webhook";
    for command in [
        "create role impersonator -n team-a --verb=impersonate --resource=serviceaccounts --resource-name=deployer".to_owned(),
        format!("create rolebinding impersonator -n team-a --role=impersonator --serviceaccount={pod}"),
    ] {
        kubectl(&cluster, &command).await;
    }
    let (_, one) = publish(&cluster, "terms", "1.0.0").await;
    let digest = one.split('@').next_back().unwrap();
    let account = json!({"namespace": "team-a", "name": "deployer"});
    for (name, more) in [
        ("terms-account", json!({"serviceAccount": account})),
        ("terms-config", json!({"config": {"replicas": 99}})),
    ] {
        let mut object = deployment(name, &one, &json!({"paused": true}));
        object["spec"]["provisionerClassName"] = "reviewed".into();
        apply(&cluster, &object).await;
        let what = format!("bundledeployment {name}");
        until(&cluster, &what, "HasValidBundle", "True").await;
        let uid = get(&cluster, &what).await.unwrap()["metadata"]["uid"].clone();
        let approval = json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "BundleApproval",
            "metadata": {"name": name},
            "spec": {"bundleDeployment": {"name": name, "uid": uid}, "digest": digest},
        });
        apply(&cluster, &approval).await;
        object["spec"]["paused"] = false.into();
        for (key, value) in more.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        apply(&cluster, &object).await;
        // The condition was already `False` before the approval, so the wait also compares the
        // message.
        wait::until_true(LONG, "the approval is invalid", || async {
            let object = get(&cluster, &what).await.unwrap_or_default();
            let approved = condition(&object, "Approved");
            let message = approved["message"].as_str().unwrap_or_default();
            anyhow::ensure!(message.contains("changed after"), "{approved}");
            Ok(approved["status"] == "False")
        })
        .await
        .unwrap();
        assert_eq!(get(&cluster, "configmap terms -n team-a").await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_through_one_replica_is_sealed_by_another_also_by_its_successor() {
    let (cluster, mut leader) = stage().await;
    // The registrations refer to the second replica. The first replica holds the lease.
    let _standby = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let (_, one) = publish(&cluster, "replicas", "1.0.0").await;
    // The second replica changes the registrations. For a write in the same second, the first
    // replica cannot prove that the registrations were intact.
    wait_until_stamps_expire().await;
    let sealed = |name: &'static str| {
        let cluster = &cluster;
        async move {
            let what = format!("bundledeployment {name}");
            wait::until_true(LONG, "it is sealed", || async {
                let object = get(cluster, &what).await.unwrap_or_default();
                Ok(object["status"]["admission"]["seal"].is_string())
            })
            .await
            .unwrap();
        }
    };
    apply(&cluster, &deployment("replicas", &one, &json!({}))).await;
    sealed("replicas").await;

    leader.kill().unwrap();
    apply(
        &cluster,
        &deployment("orphaned", &one, &json!({"paused": true})),
    )
    .await;
    sealed("orphaned").await;
    until(
        &cluster,
        "bundledeployment orphaned",
        "HasValidBundle",
        "True",
    )
    .await;
}
