//! Rollback attacks: an attacker offers old signed content under a newer tag, and a policy that
//! forbids downgrades rejects this content.

use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::manifest::RawManifest;
use bundle_oci::registry::{Client, ClientOptions, Repository};
use e2e::{Cluster, Tool, bundles, wait};
use serde_json::{Value, json};

use super::{patch_status, status_writer, until_status};
use crate::scenarios::reconcile::{
    LONG, apply, condition, deployment, get, installed, publish, stage,
};

async fn run_plugin(cluster: &Cluster, arguments: &str) {
    let plugin = cluster.plugin().await.unwrap();
    let output = plugin
        .args(arguments.split(' '))
        .env("BUNDLE_PASSWORD", "fixture")
        .current_dir(cluster.folder())
        .output();
    output.await.unwrap().success().unwrap();
}

/// Pushes and signs a greeting bundle of this version under this tag.
async fn signed(cluster: &Cluster, version: &str, tag: &str) -> PinnedReference {
    let reference = format!("greeting:{tag}");
    let pinned = publish(cluster, &reference, |f| bundles::greeting(f, version, None)).await;
    run_plugin(cluster, &format!("sign {pinned} --key release.key")).await;
    let reference: Reference = pinned.parse().unwrap();
    reference.pinned().unwrap()
}

async fn deploy(cluster: &Cluster, reference: &str) {
    apply(cluster, &deployment("greeting", reference, &json!({}))).await;
}

async fn installed_version(cluster: &Cluster) -> Value {
    let object = get(cluster, "bundledeployment greeting").await.unwrap();
    object["status"]["installed"]["version"].clone()
}

/// Waits until the BundleDeployment contains this message for its current generation. Checks that
/// version 2.0.0 is still installed.
async fn is_rejected(cluster: &Cluster, message: &str) {
    wait::until(LONG, message, || async {
        let object = get(cluster, "bundledeployment greeting").await;
        let object = object.unwrap_or_default();
        let conditions = object["status"]["conditions"].to_string();
        let seen = condition(&object, "Ready")["observedGeneration"].clone();
        if conditions.contains(message) && seen == object["metadata"]["generation"] {
            return Ok(Some(()));
        }
        anyhow::bail!("{conditions}")
    })
    .await
    .unwrap();
    assert_eq!(installed_version(cluster).await, "2.0.0");
}

/// Creates a key, and a policy that forbids downgrades of the greeting bundles that are signed with
/// this key.
async fn forbid_downgrades(cluster: &Cluster) {
    run_plugin(cluster, "keys generate --output-key-prefix release").await;
    let host = cluster.registry(0).unwrap().host();
    let key = fs_err::read_to_string(cluster.folder().join("release.pub")).unwrap();
    let policy = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": { "name": "releases" },
        "spec": {
            "images": [{ "glob": format!("{host}/greeting") }],
            "authorities": [{ "key": { "data": key } }],
            "versions": { "allowDowngrade": false },
        },
    });
    apply(cluster, &policy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_written_into_a_status_do_not_admit_a_downgrade() {
    let (cluster, _webhook) = stage().await;
    forbid_downgrades(&cluster).await;
    status_writer(&cluster).await;
    let old = signed(&cluster, "1.0.0", "1.0.0").await;
    let new = signed(&cluster, "2.0.0", "2.0.0").await;
    deploy(&cluster, &new.to_string()).await;
    installed(&cluster, "greeting").await;
    let lower = json!({"installed": {"version": "0.1.0"}, "revisions": null});
    patch_status(&cluster, "bundledeployment greeting", &lower).await;
    deploy(&cluster, &old.to_string()).await;
    is_rejected(
        &cluster,
        "version 1.0.0 is lower than the installed version 2.0.0",
    )
    .await;

    let bundles = get(&cluster, "bundles -l app=greeting").await.unwrap();
    let mut bundles = bundles["items"].as_array().into_iter().flatten();
    let older = bundles.find(|bundle| bundle["status"]["content"]["version"] == "1.0.0");
    let older = older.and_then(|bundle| bundle["metadata"]["name"].as_str());
    let older = format!("bundle {}", older.unwrap());
    let higher = json!({"content": {"version": "3.0.0"}});
    patch_status(&cluster, &older, &higher).await;
    until_status(&cluster, &older, "/content/version", &json!("1.0.0")).await;
    is_rejected(
        &cluster,
        "version 1.0.0 is lower than the installed version 2.0.0",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_older_content_under_a_newer_tag() {
    let (cluster, _webhook) = stage().await;
    forbid_downgrades(&cluster).await;
    let host = cluster.registry(0).unwrap().host();
    let old = signed(&cluster, "1.0.0", "1.0.0").await;
    let new = signed(&cluster, "2.0.0", "2.0.0").await;
    let candidate = signed(&cluster, "2.0.0-rc.1", "2.0.0-rc.1").await;
    let rebuilt = signed(&cluster, "2.0.0+two", "2.0.0-two").await;
    deploy(&cluster, &new.to_string()).await;
    installed(&cluster, "greeting").await;
    assert_eq!(installed_version(&cluster).await, "2.0.0");

    // The attacker pushes the old signed content under a newer tag.
    let client = Client::new(ClientOptions::default()).unwrap();
    let home: Repository = format!("{host}/greeting").parse().unwrap();
    let manifest = client.raw_manifest(&home, old.digest().as_str()).await;
    let manifest = manifest.unwrap();
    client
        .put_raw_manifest(&home, "2.1.0", &manifest)
        .await
        .unwrap();
    deploy(&cluster, &format!("{host}/greeting:2.1.0")).await;
    is_rejected(
        &cluster,
        "version 1.0.0 is lower than the installed version 2.0.0",
    )
    .await;

    // A release candidate is lower than its release.
    deploy(&cluster, &candidate.to_string()).await;
    is_rejected(
        &cluster,
        "version 2.0.0-rc.1 is lower than the installed version 2.0.0",
    )
    .await;

    // The old content with a new version in its manifest is other content, which the old signature
    // does not cover.
    let mut document: Value = serde_json::from_slice(&manifest.bytes).unwrap();
    document["annotations"]["org.opencontainers.image.version"] = json!("2.1.0");
    let bytes: Vec<u8> = document.to_string().into_bytes();
    let changed = RawManifest {
        digest: bundle_core::reference::Digest::of(&bytes),
        bytes: bytes.into(),
        ..manifest
    };
    client
        .put_raw_manifest(&home, "2.1.1", &changed)
        .await
        .unwrap();
    let renamed: Reference = format!("{host}/greeting:2.1.1").parse().unwrap();
    let renamed = renamed.pin(changed.digest.clone());
    let signature = client.signatures(&old).await.unwrap().remove(0);
    client
        .push_signature(&renamed, signature.bytes)
        .await
        .unwrap();
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let object = deployment("greeting", &renamed.to_string(), &json!({}));
    let denied = kubectl.args(["apply", "-f", "-"]).stdin(object.to_string());
    let why = denied.output().await.unwrap().failure(1).unwrap();
    assert!(
        why.contains("denied the request") && why.contains("for another digest"),
        "{why}"
    );

    // Another build of the same version is not a downgrade.
    deploy(&cluster, &rebuilt.to_string()).await;
    wait::until_true(LONG, "the other build is installed", || async {
        Ok(installed_version(&cluster).await == "2.0.0+two")
    })
    .await
    .unwrap();
}
