//! Deadlines of rollouts, and the automatic rollback to the content that was healthy before. No
//! controllers run, so the scenarios write the status of Deployments.

use e2e::{Cluster, Webhook, wait};
use serde_json::{Value, json};

use super::{LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, staged, until};
use crate::scenarios::objects::{apply_with_kubeconfig, condition, until_condition, until_reason};
use crate::scenarios::reconcile::bundle_editor;

mod readiness;

const NAME: &str = "bundledeployment web";
const PATCHES: &str = "config: {schema: config.schema.json, default: config.yaml, patches: [{kind: ConfigMap, name: web, path: /data/text, value: /text}]}\n";
const SECRET: &str = "---
apiVersion: v1
kind: Secret
metadata: {name: web, namespace: team-a}
stringData: {key: former}
";

/// Returns a ConfigMap and a Deployment. `image` is the tag of the image in the Deployment.
fn manifests(image: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: web, namespace: team-a}}
data: {{text: default, image: '{image}'}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: team-a}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers: [{{name: web, image: 'example.com/web:{image}'}}]
"
    )
}

/// Writes version `version` of a package with a configuration.
fn write(folder: &std::path::Path, version: &str, manifests: &str) -> anyhow::Result<()> {
    bundle_of(folder, "web", manifests)?;
    let file = folder.join("bundle.yaml");
    let package = fs_err::read_to_string(&file)?.replace("1.0.0", version);
    fs_err::write(&file, package + PATCHES)?;
    let schema = r#"{"type": "object", "properties": {"text": {"type": "string"}}}"#;
    fs_err::write(folder.join("config.schema.json"), schema)?;
    fs_err::write(folder.join("config.yaml"), "text: default\n")?;
    Ok(())
}

async fn version(cluster: &Cluster, number: u8, more: &str) -> String {
    let manifests = format!("{}{more}", manifests(&number.to_string()));
    let version = format!("{number}.0.0");
    publish(cluster, &format!("team/web:{number}"), |folder| {
        write(folder, &version, &manifests)
    })
    .await
}

async fn stage() -> (Cluster, Webhook) {
    let (cluster, webhook) = staged(Cluster::builder().controller_manager(false)).await;
    kubectl(&cluster, "create namespace team-a").await;
    (cluster, webhook)
}

/// Returns the BundleDeployment of this content with `rollout`. `text` is the text in the
/// configuration of the BundleDeployment.
fn web(reference: &str, rollout: &Value, text: &str) -> Value {
    let more = json!({"rollout": rollout, "config": {"text": text}});
    deployment("web", reference, &more)
}

/// Writes the status that a controller writes when all replicas of the Deployment are available.
async fn make_available(cluster: &Cluster, image: &str) {
    let wanted = format!("example.com/web:{image}");
    let what = "deployment web -n team-a";
    let object = wait::until(LONG, "the Deployment has its image", || async {
        let found = get(cluster, what).await.unwrap_or_default();
        let containers = &found["spec"]["template"]["spec"]["containers"];
        Ok((containers[0]["image"] == *wanted).then_some(found))
    });
    let generation = object.await.unwrap()["metadata"]["generation"].clone();
    let condition =
        |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
    let status = json!({"status": {
        "observedGeneration": generation,
        "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    }});
    let patch = status.to_string();
    let words = [
        "patch",
        "deployment",
        "web",
        "-n",
        "team-a",
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    cluster.kubectl(words).await.unwrap().success().unwrap();
}

/// Installs the first version, and waits until it is healthy.
async fn install_healthy(cluster: &Cluster, object: &Value) {
    apply(cluster, object).await;
    make_available(cluster, "1").await;
    until(cluster, NAME, "Ready", "True").await;
}

/// Returns the ConfigMap, the Secret and the Deployment without fields that differ between equal
/// objects.
async fn objects(cluster: &Cluster) -> Value {
    let list = get(
        cluster,
        "configmaps,secrets,deployments -n team-a -l core.rukpak.io/owner-name=web",
    )
    .await;
    let mut items = list.unwrap_or_default()["items"].clone();
    for item in items.as_array_mut().into_iter().flatten() {
        item.as_object_mut().unwrap().remove("status");
        let metadata = item["metadata"].as_object_mut().unwrap();
        for field in [
            "uid",
            "generation",
            "resourceVersion",
            "managedFields",
            "creationTimestamp",
        ] {
            metadata.remove(field);
        }
    }
    items
}

/// Waits for an Event about the BundleDeployment with this reason, and returns its note.
async fn event(cluster: &Cluster, reason: &str) -> String {
    let line = format!("events.events.k8s.io -A --field-selector reason={reason}");
    wait::until(LONG, &format!("an Event {reason}"), || async {
        let list = get(cluster, &line).await.unwrap_or_default();
        Ok(list["items"][0]["note"].as_str().map(str::to_owned))
    })
    .await
    .unwrap()
}

/// Waits until the former content is installed in place of the failed content, and returns the
/// BundleDeployment.
async fn until_rolled_back(cluster: &Cluster) -> Value {
    let message = until_reason(cluster, NAME, "Ready", "RolledBack").await;
    assert!(message.ends_with("[BUNDLE-INSTALL-121]"), "{message}");
    get(cluster, NAME).await.unwrap()
}

/// Returns version and state of each revision.
fn states(object: &Value) -> Vec<(&str, &str)> {
    let revisions = object["status"]["revisions"]
        .as_array()
        .into_iter()
        .flatten();
    revisions
        .filter_map(|one| Some((one["version"].as_str()?, one["state"].as_str()?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unhealthy_content_is_held_after_the_deadline_until_it_is_healthy() {
    let (cluster, _webhook) = stage().await;
    let one = version(&cluster, 1, "").await;
    let two = version(&cluster, 2, "").await;
    let hold = json!({"deadline": "2s"});
    install_healthy(&cluster, &web(&one, &hold, "a")).await;
    apply(&cluster, &web(&two, &hold, "a")).await;

    let message = until_reason(&cluster, NAME, "Ready", "ProgressDeadlineExceeded").await;
    let cause = "was not healthy within spec.rollout.deadline 2s: Deployment.apps/team-a/web: ";
    assert!(message.contains(cause), "{message}");
    assert!(message.ends_with("[BUNDLE-INSTALL-120]"), "{message}");
    let note = event(&cluster, "BUNDLE-INSTALL-120").await;
    assert!(note.contains(cause), "{note}");
    let object = get(&cluster, NAME).await.unwrap();
    for (kind, status, reason) in [
        ("Progressing", "False", "ProgressDeadlineExceeded"),
        ("Healthy", "False", "Unhealthy"),
        ("Installed", "True", "InstallationSucceeded"),
    ] {
        let found = condition(&object, kind);
        assert_eq!(
            (&found["status"], &found["reason"]),
            (&json!(status), &json!(reason)),
            "{object}"
        );
    }
    assert_eq!(
        states(&object),
        [("2.0.0", "Active"), ("1.0.0", "Superseded")]
    );
    assert_eq!(object["status"]["warnings"], Value::Null, "{object}");

    // Drift is still corrected.
    kubectl(&cluster, "delete configmap web -n team-a").await;
    wait::until_true(LONG, "the ConfigMap is restored", || async {
        Ok(get(&cluster, "configmap web -n team-a").await.is_some())
    })
    .await
    .unwrap();

    make_available(&cluster, "2").await;
    until(&cluster, NAME, "Ready", "True").await;
    let progressing = until_condition(&cluster, NAME, "Progressing", "False").await;
    assert_ne!(progressing["reason"], "ProgressDeadlineExceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_upgrade_returns_once_to_exactly_the_former_objects() {
    let (cluster, mut webhook) = stage().await;
    let one = version(&cluster, 1, SECRET).await;
    let two = version(&cluster, 2, "").await;
    let three = version(&cluster, 3, "").await;
    let back = json!({"deadline": "2s", "onFailure": "RollBack"});
    install_healthy(&cluster, &web(&one, &back, "first")).await;
    let before = objects(&cluster).await;
    assert_eq!(before.as_array().map(Vec::len), Some(3), "{before}");

    apply(&cluster, &web(&two, &back, "second")).await;
    let object = until_rolled_back(&cluster).await;
    assert_eq!(objects(&cluster).await, before);
    assert_eq!(states(&object), [("1.0.0", "Active"), ("2.0.0", "Failed")]);
    let revisions = &object["status"]["revisions"];
    assert_eq!(revisions[0]["number"], 3, "{revisions}");
    assert_eq!(revisions[0]["config"], json!({"text": "first"}));
    for kind in ["Installed", "Progressing"] {
        let found = condition(&object, kind);
        assert_eq!(
            (&found["status"], &found["reason"]),
            (&json!("False"), &json!("RolledBack"))
        );
    }
    // The rollback does not change the spec, because the spec belongs to its requesters.
    assert_eq!(object["spec"]["config"], json!({"text": "second"}));
    let note = event(&cluster, "BUNDLE-INSTALL-121").await;
    assert!(note.contains("Deployment.apps/team-a/web"), "{note}");
    make_available(&cluster, "1").await;
    until(&cluster, NAME, "Healthy", "True").await;

    // The failed content is not applied again, even after a restart. Drift is corrected.
    webhook.restart().await.unwrap();
    kubectl(&cluster, "delete secret web -n team-a").await;
    wait::until_true(LONG, "the Secret is restored", || async {
        Ok(get(&cluster, "secret web -n team-a").await.is_some())
    })
    .await
    .unwrap();
    assert_eq!(objects(&cluster).await, before);
    let object = until_rolled_back(&cluster).await;
    assert_eq!(states(&object), [("1.0.0", "Active"), ("2.0.0", "Failed")]);

    // A write of the spec causes another attempt, which fails in the same way.
    let longer = json!({"deadline": "20s", "onFailure": "RollBack"});
    apply(&cluster, &web(&two, &longer, "second")).await;
    until_reason(&cluster, NAME, "Progressing", "WaitingForHealth").await;
    let object = until_rolled_back(&cluster).await;
    assert_eq!(object["status"]["revisions"][0]["number"], 5, "{object}");

    apply(&cluster, &web(&three, &longer, "second")).await;
    make_available(&cluster, "3").await;
    until(&cluster, NAME, "Ready", "True").await;
    let object = get(&cluster, NAME).await.unwrap();
    assert_eq!(states(&object)[0], ("3.0.0", "Active"));
    assert!(get(&cluster, "secret web -n team-a").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_after_a_return_does_not_try_the_failed_content_again() {
    let (cluster, _webhook) = stage().await;
    let one = version(&cluster, 1, "").await;
    let two = version(&cluster, 2, "").await;
    let back = json!({"deadline": "2s", "onFailure": "RollBack"});
    install_healthy(&cluster, &web(&one, &back, "a")).await;
    let mut failed = web(&two, &back, "a");
    apply(&cluster, &failed).await;
    until_rolled_back(&cluster).await;
    make_available(&cluster, "1").await;
    until(&cluster, NAME, "Healthy", "True").await;
    let before = objects(&cluster).await;
    let revisions = get(&cluster, NAME).await.unwrap()["status"]["revisions"].clone();

    failed["spec"]["paused"] = true.into();
    apply(&cluster, &failed).await;
    until_reason(&cluster, NAME, "Ready", "Paused").await;
    failed["spec"]["paused"] = false.into();
    apply(&cluster, &failed).await;
    let object = until_rolled_back(&cluster).await;
    assert_eq!(object["status"]["revisions"], revisions);
    assert_eq!(objects(&cluster).await, before);

    // A changed spec causes another attempt.
    let longer = json!({"deadline": "20s", "onFailure": "RollBack"});
    apply(&cluster, &web(&two, &longer, "a")).await;
    until_reason(&cluster, NAME, "Progressing", "WaitingForHealth").await;
    let object = until_rolled_back(&cluster).await;
    assert_ne!(object["status"]["revisions"], revisions);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_configuration_returns_to_the_former_configuration() {
    let (cluster, _webhook) = stage().await;
    let one = version(&cluster, 1, "").await;
    let back = json!({"deadline": "2s", "onFailure": "RollBack", "history": 0});
    install_healthy(&cluster, &web(&one, &back, "first")).await;
    let before = objects(&cluster).await;
    // The Deployment becomes unavailable, as if its Pods had failed with the new configuration.
    let patch = r#"{"status":{"availableReplicas":0,"readyReplicas":0}}"#;
    let line =
        format!("patch deployment web -n team-a --subresource=status --type=merge -p {patch}");
    kubectl(&cluster, &line).await;
    until(&cluster, NAME, "Healthy", "False").await;
    apply(&cluster, &web(&one, &back, "second")).await;
    let object = until_rolled_back(&cluster).await;
    assert_eq!(objects(&cluster).await, before);
    let message = condition(&object, "Ready")["message"].to_string();
    assert!(
        message.contains("with its former configuration"),
        "{message}"
    );
    assert_eq!(states(&object), [("1.0.0", "Active")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_survives_a_restart_between_apply_and_deadline() {
    let (cluster, mut webhook) = stage().await;
    let one = version(&cluster, 1, "").await;
    let two = version(&cluster, 2, "").await;
    let back = json!({"deadline": "20s", "onFailure": "RollBack"});
    install_healthy(&cluster, &web(&one, &back, "a")).await;
    let before = objects(&cluster).await;
    apply(&cluster, &web(&two, &back, "a")).await;
    let progress = until_reason(&cluster, NAME, "Progressing", "WaitingForHealth").await;
    assert_eq!(progress, "0/1 workloads ready");
    webhook.kill().unwrap();
    webhook.restart().await.unwrap();
    let object = until_rolled_back(&cluster).await;
    assert_eq!(objects(&cluster).await, before);
    assert_eq!(states(&object), [("1.0.0", "Active"), ("2.0.0", "Failed")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn return_is_refused_after_another_user_took_over_the_deployment() {
    let (cluster, _webhook) = stage().await;
    let one = version(&cluster, 1, "").await;
    let two = version(&cluster, 2, "").await;
    let ana = bundle_editor(&cluster, "ana", &[]).await;
    kubectl(
        &cluster,
        "create rolebinding ana -n team-a --clusterrole cluster-admin --user ana@example.com",
    )
    .await;
    let back = json!({"deadline": "20s", "onFailure": "RollBack"});
    apply_with_kubeconfig(&cluster, &web(&one, &back, "a"), &ana).await;
    make_available(&cluster, "1").await;
    until(&cluster, NAME, "Ready", "True").await;
    apply_with_kubeconfig(&cluster, &web(&two, &back, "a"), &ana).await;
    until_reason(&cluster, NAME, "Progressing", "WaitingForHealth").await;

    // The administrator requests exactly the new content.
    let object = get(&cluster, NAME).await.unwrap();
    let token = object["status"]["admission"]["admit"].as_str().unwrap();
    let line = format!("annotate {NAME} core.rukpak.io/admit={token}");
    kubectl(&cluster, &line).await;
    let message = until_reason(&cluster, NAME, "Ready", "ProgressDeadlineExceeded").await;
    assert!(
        message.contains("the former content was requested by ana@example.com, who"),
        "{message}"
    );
    let object = get(&cluster, NAME).await.unwrap();
    assert_eq!(object["status"]["installed"]["version"], "2.0.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn return_is_refused_without_the_permissions_for_the_former_content() {
    let (cluster, _webhook) = stage().await;
    let one = version(&cluster, 1, SECRET).await;
    let two = version(&cluster, 2, "").await;
    let ana = bundle_editor(&cluster, "ana", &[]).await;
    for (role, resources) in [
        ("most", "configmaps,deployments.apps"),
        ("secrets", "secrets"),
    ] {
        let line = format!(
            "create role {role} -n team-a --verb get,create,patch,delete --resource {resources}"
        );
        kubectl(&cluster, &line).await;
        let line =
            format!("create rolebinding {role} -n team-a --role {role} --user ana@example.com");
        kubectl(&cluster, &line).await;
    }
    let back = json!({"deadline": "2s", "onFailure": "RollBack"});
    apply_with_kubeconfig(&cluster, &web(&one, &back, "a"), &ana).await;
    make_available(&cluster, "1").await;
    until(&cluster, NAME, "Ready", "True").await;

    // The new content has no Secret, so its installation prunes the Secret. Afterwards the
    // permission to write the Secret is withdrawn, so a rollback cannot create the Secret again.
    let slow = json!({"deadline": "30s", "onFailure": "RollBack"});
    apply_with_kubeconfig(&cluster, &web(&two, &slow, "a"), &ana).await;
    until_reason(&cluster, NAME, "Progressing", "WaitingForHealth").await;
    kubectl(&cluster, "delete rolebinding secrets -n team-a").await;

    let message = until_reason(&cluster, NAME, "Ready", "ProgressDeadlineExceeded").await;
    for expected in [
        "the former content is not installed again: ",
        "secrets",
        "[BUNDLE-INSTALL-120]",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    let note = event(&cluster, "BUNDLE-INSTALL-122").await;
    assert!(note.contains("ana@example.com"), "{note}");
    assert!(get(&cluster, "secret web -n team-a").await.is_none());
    let object = get(&cluster, NAME).await.unwrap();
    assert_eq!(object["status"]["installed"]["version"], "2.0.0");

    // The restored permission alone starts no rollback, so the new content can still become
    // healthy.
    kubectl(
        &cluster,
        "create rolebinding secrets -n team-a --role secrets --user ana@example.com",
    )
    .await;
    make_available(&cluster, "2").await;
    until(&cluster, NAME, "Ready", "True").await;
    installed(&cluster, "web").await;
    assert!(get(&cluster, "secret web -n team-a").await.is_none());
}
