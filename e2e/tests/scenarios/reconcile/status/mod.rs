//! Status fields written by other users: no decision of the webhook depends on these values, and
//! the webhook writes the correct values again.

use std::collections::BTreeMap;

use bundle_core::object::ObjectId;
use bundle_core::plan::drift::{
    FieldsEntry, Fingerprint, ObjectRevision, ObjectRevisionParts, combined,
};
use bundle_core::review::CheckedBundleSpec;
use e2e::{Cluster, Webhook, bundles, wait};
use serde_json::{Value, json};

use super::lifecycle::until_no_writes;
use super::{
    LONG, apply, condition, deployment, get, install_web, installed, kubectl, publish, stage,
    staged, try_get, until,
};

mod older;
mod server_warnings;

const MALLORY: &str = "mallory";

/// Grants the attacker permission to write only the status.
pub(super) async fn status_writer(cluster: &Cluster) {
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": "status-writer"},
        "rules": [{
            "apiGroups": ["core.rukpak.io"],
            "resources": ["bundles/status", "bundledeployments/status"],
            "verbs": ["get", "patch"],
        }],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "status-writer"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "status-writer"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": MALLORY}],
    });
    apply(cluster, &role).await;
    apply(cluster, &binding).await;
}

/// Merges `status` into the status of an object, as the attacker.
pub(super) async fn patch_status(cluster: &Cluster, what: &str, status: &Value) {
    let (kind, name) = what.split_once(' ').unwrap();
    let patch = json!({ "status": status }).to_string();
    let user = format!("--as={MALLORY}");
    let line = [
        "patch",
        kind,
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
        &user,
    ];
    cluster.kubectl(line).await.unwrap().success().unwrap();
}

/// Returns the generated Bundle of `deployment`, as kind and name.
async fn bundle_of_template(cluster: &Cluster, deployment: &str) -> String {
    let listed = wait::until(LONG, "the Bundle is there", || async {
        let listed = kubectl(cluster, &format!("get bundles -l app={deployment} -o name")).await;
        Ok((!listed.is_empty()).then_some(listed))
    });
    let listed = listed.await.unwrap();
    let name = listed.trim().trim_start_matches("bundle.core.rukpak.io/");
    assert!(!name.contains('\n'), "more than one: {name}");
    format!("bundle {name}")
}

fn digest_in(pinned: &str) -> &str {
    pinned.split_once('@').unwrap().1
}

/// Returns the text of the ConfigMap in the installed greeting bundle.
async fn greeting(cluster: &Cluster) -> Value {
    let found = get(cluster, "configmap greeting -n greeting").await;
    found.unwrap_or_default()["data"]["text"].clone()
}

/// Stops the webhook, and deletes and restores the registrations, which invalidates all stamps.
/// Afterwards only seals are valid.
async fn stop_and_void_stamps(cluster: &Cluster, webhook: &mut Webhook) {
    webhook.stop().await.unwrap();
    for kind in ["validating", "mutating"] {
        kubectl(
            cluster,
            &format!("delete {kind}webhookconfiguration bundle-webhook"),
        )
        .await;
    }
    webhook.register().await.unwrap();
}

/// Waits until a field of a status is `wanted`.
pub(super) async fn until_status(cluster: &Cluster, what: &str, pointer: &str, wanted: &Value) {
    let message = format!("{what}: {pointer} is {wanted}");
    wait::until(LONG, &message, || async {
        let object = try_get(cluster, what).await?.unwrap_or_default();
        let found = object["status"].pointer(pointer).unwrap_or(&Value::Null);
        if found == wanted {
            return Ok(Some(()));
        }
        anyhow::bail!("{}", object["status"])
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn digest_written_into_the_status_of_a_bundle_is_not_installed() {
    let (cluster, _webhook) = stage().await;
    status_writer(&cluster).await;
    let push = async |tag: &str, version: &str| {
        publish(&cluster, &format!("team/greeting:{tag}"), |f| {
            bundles::greeting(f, version, None)
        })
        .await
    };
    let one = push("1", "1.0.0").await;
    let two = push("2", "2.0.0").await;
    let tag = cluster.registry(0).unwrap().reference("team/greeting:1");
    apply(&cluster, &deployment("greeting", &tag, &json!({}))).await;
    installed(&cluster, "greeting").await;
    let bundle = bundle_of_template(&cluster, "greeting").await;

    // First the record of this template is removed from the status of the BundleDeployment. Then
    // the status of the Bundle is forged.
    let forgotten = json!({"revisions": null, "installed": null, "activeBundle": null});
    patch_status(&cluster, "bundledeployment greeting", &forgotten).await;
    let other = json!({"content": {"digest": digest_in(&two), "version": "2.0.0"}});
    patch_status(&cluster, &bundle, &other).await;
    until_status(
        &cluster,
        &bundle,
        "/content/digest",
        &json!(digest_in(&one)),
    )
    .await;
    until_status(&cluster, &bundle, "/content/version", &json!("1.0.0")).await;
    until_status(
        &cluster,
        "bundledeployment greeting",
        "/installed/digest",
        &json!(digest_in(&one)),
    )
    .await;
    assert_eq!(greeting(&cluster).await, "Hello from 1.0.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_written_into_the_status_of_a_failing_bundle_is_not_installed() {
    let (cluster, _webhook) = stage().await;
    status_writer(&cluster).await;
    let one = publish(&cluster, "team/greeting:1", |f| {
        bundles::greeting(f, "1.0.0", None)
    })
    .await;
    let missing = cluster.registry(0).unwrap();
    let missing = missing.reference("team/greeting:missing");
    apply(&cluster, &deployment("greeting", &missing, &json!({}))).await;
    let bundle = bundle_of_template(&cluster, "greeting").await;
    until_status(&cluster, &bundle, "/phase", &json!("Failing")).await;
    let stored = get(&cluster, &bundle).await.unwrap();
    let spec = CheckedBundleSpec::parse(&stored["spec"]).unwrap();
    let unpacked = json!({
        "phase": "Unpacked",
        "content": {"digest": digest_in(&one), "specDigest": spec.digest.to_string(), "version": "1.0.0"},
    });
    patch_status(&cluster, &bundle, &unpacked).await;
    until_status(&cluster, &bundle, "/phase", &json!("Failing")).await;
    until_status(&cluster, &bundle, "/content", &Value::Null).await;
    wait::until_true(LONG, "the failure is reported", || async {
        let found = try_get(&cluster, "bundledeployment greeting").await?;
        let found = found.unwrap_or_default();
        let found = condition(&found, "HasValidBundle");
        let message = found["message"].as_str().unwrap_or_default();
        anyhow::ensure!(message.contains("Failed to unpack"), "{found}");
        Ok(found["status"] == "False")
    })
    .await
    .unwrap();
    assert_eq!(get(&cluster, "namespace greeting").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_tag_is_not_followed_after_the_seal_of_its_bundle_was_removed() {
    let (cluster, mut webhook) = stage().await;
    status_writer(&cluster).await;
    let push = async |version: &str| {
        publish(&cluster, "team/greeting:1", |f| {
            bundles::greeting(f, version, None)
        })
        .await
    };
    let one = push("1.0.0").await;
    let tag = cluster.registry(0).unwrap().reference("team/greeting:1");
    apply(&cluster, &deployment("greeting", &tag, &json!({}))).await;
    installed(&cluster, "greeting").await;
    let bundle = bundle_of_template(&cluster, "greeting").await;
    push("2.0.0").await;

    stop_and_void_stamps(&cluster, &mut webhook).await;
    let nothing = json!({"admission": null, "content": null, "phase": null});
    patch_status(&cluster, &bundle, &nothing).await;
    webhook.start().await.unwrap();
    webhook.wait_for_admission().await.unwrap();
    until_status(
        &cluster,
        &bundle,
        "/content/digest",
        &json!(digest_in(&one)),
    )
    .await;
    until(&cluster, "bundledeployment greeting", "Ready", "True").await;
    assert_eq!(bundle_of_template(&cluster, "greeting").await, bundle);
    assert_eq!(greeting(&cluster).await, "Hello from 1.0.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_continues_after_its_seal_was_removed() {
    let (cluster, mut webhook) = staged(Cluster::builder().audit(true)).await;
    status_writer(&cluster).await;
    install_web(&cluster).await;
    // The pod records the seal in the inventory at the first reconcile after the installation.
    until_no_writes(&cluster).await;
    let what = "bundledeployment web";
    let before = get(&cluster, "bundledeployment web").await.unwrap();
    stop_and_void_stamps(&cluster, &mut webhook).await;
    patch_status(&cluster, what, &json!({"admission": null})).await;
    webhook.start().await.unwrap();
    let seal = &before["status"]["admission"]["seal"];
    until_status(&cluster, what, "/admission/seal", seal).await;
    kubectl(&cluster, "delete configmap web -n team-a").await;
    wait::until_true(LONG, "the ConfigMap is back", || async {
        Ok(get(&cluster, "configmap web -n team-a").await.is_some())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn status_fields_written_by_another_user_are_corrected() {
    let (cluster, _webhook) = stage().await;
    status_writer(&cluster).await;
    install_web(&cluster).await;
    until(&cluster, "bundledeployment web", "Ready", "True").await;
    let what = "bundledeployment web";
    let before = get(&cluster, "bundledeployment web").await.unwrap();
    let other = format!("sha256:{}", "0".repeat(64));
    let forged = json!({
        "activeBundle": "other",
        "revisions": [{"bundle": "other", "digest": other, "state": "Active"}],
        "installed": {"digest": other, "version": "9.0.0", "fieldsDigest": other, "as": {"namespace": "default", "name": "default"}},
    });
    patch_status(&cluster, what, &forged).await;
    for pointer in ["/activeBundle", "/revisions", "/installed"] {
        let wanted = before["status"].pointer(pointer).unwrap();
        until_status(&cluster, what, pointer, wanted).await;
    }
}

/// Returns the digest that the webhook would record after applying this ConfigMap.
fn fields_digest(config: &Value) -> String {
    let metadata = &config["metadata"];
    let labels: BTreeMap<String, String> =
        serde_json::from_value(metadata["labels"].clone()).unwrap();
    let entries = metadata["managedFields"].as_array().unwrap();
    let entries = entries.iter().map(|entry| {
        let time: jiff::Timestamp = entry["time"].as_str().unwrap().parse().unwrap();
        FieldsEntry {
            manager: entry["manager"].as_str().unwrap(),
            operation: entry["operation"].as_str().unwrap(),
            subresource: "",
            api_version: entry["apiVersion"].as_str().unwrap(),
            time: Some(time.as_second()),
            fields: &entry["fieldsV1"],
        }
    });
    let ours = [
        "core.rukpak.io/owner-kind",
        "core.rukpak.io/owner-name",
        "applyset.kubernetes.io/part-of",
    ];
    let fingerprint = Fingerprint::of("bundle-webhook", entries, &labels, &ours).unwrap();
    let revision = ObjectRevision::of(ObjectRevisionParts {
        group: "",
        kind: "ConfigMap",
        generation: None,
        resource_version: metadata["resourceVersion"].as_str().unwrap(),
        rest: "",
    });
    let id = ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: metadata["namespace"].as_str().map(str::to_owned),
        name: metadata["name"].as_str().unwrap().to_owned(),
    };
    combined([(id.to_string(), fingerprint, revision)]).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_not_hidden_by_a_digest_written_into_the_status() {
    let (cluster, mut webhook) = stage().await;
    status_writer(&cluster).await;
    install_web(&cluster).await;
    until(&cluster, "bundledeployment web", "Ready", "True").await;
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    let fields = "configmap web -n team-a --show-managed-fields";
    let config = get(&cluster, fields).await.unwrap();
    assert_eq!(
        object["status"]["installed"]["fieldsDigest"],
        fields_digest(&config)
    );

    webhook.stop().await.unwrap();
    let patch = [
        "patch",
        "configmap",
        "web",
        "--namespace=team-a",
        "--type=merge",
        "--patch={\"data\":{\"text\":\"changed\"}}",
    ];
    cluster.kubectl(patch).await.unwrap().success().unwrap();
    let config = get(&cluster, fields).await.unwrap();
    let forged = json!({"installed": {"fieldsDigest": fields_digest(&config)}});
    patch_status(&cluster, "bundledeployment web", &forged).await;
    webhook.start().await.unwrap();
    wait::until_true(LONG, "the text is restored", || async {
        let config = get(&cluster, "configmap web -n team-a").await;
        Ok(config.unwrap_or_default()["data"]["text"] == "hello")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn account_written_into_a_status_removes_nothing() {
    let (cluster, _webhook) = stage().await;
    status_writer(&cluster).await;
    install_web(&cluster).await;
    until(&cluster, "bundledeployment web", "Ready", "True").await;
    // A finalizer of another controller delays the removal of the BundleDeployment while its status
    // is written.
    kubectl(
        &cluster,
        "patch configmap web -n team-a --type=merge --patch={\"metadata\":{\"finalizers\":[\"example.com/hold\"]}}",
    )
    .await;
    kubectl(&cluster, "delete bundledeployment web --wait=false").await;
    let message = until(&cluster, "bundledeployment web", "Ready", "False").await;
    assert!(message.contains("example.com/hold"), "{message}");
    let nobody = json!({"installed": {"as": {"namespace": "default", "name": "nobody"}}});
    patch_status(&cluster, "bundledeployment web", &nobody).await;
    kubectl(
        &cluster,
        "patch configmap web -n team-a --type=merge --patch={\"metadata\":{\"finalizers\":null}}",
    )
    .await;
    wait::until_true(LONG, "the deployment is gone", || async {
        let object = get(&cluster, "bundledeployment web").await;
        if let Some(object) = &object {
            anyhow::bail!("{}", condition(object, "Ready"));
        }
        Ok(true)
    })
    .await
    .unwrap();
}
