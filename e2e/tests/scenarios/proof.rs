//! Proof that an object carries: under an enforced policy it is admitted where no registry can be reached, and nothing that was tampered with is.
//! Limits are tables in bundle-trust.

mod island;

use std::time::Duration;

use e2e::{Cluster, Output, Tool, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

const PROOF: &str = "core.rukpak.io/proof";
const LONG: Duration = Duration::from_secs(30);

async fn ours(cluster: &Cluster, arguments: &str) -> String {
    let plugin = cluster.plugin().await.unwrap();
    plugin
        .args(arguments.split(' '))
        .env("BUNDLE_PASSWORD", "fixture")
        .current_dir(cluster.folder())
        .output()
        .await
        .unwrap()
        .success()
        .unwrap()
}

/// Pushes a greeting, signs it where a key is given, and returns its pinned reference.
async fn publish(cluster: &Cluster, version: &str, key: Option<&str>) -> String {
    bundles::greeting(&cluster.folder().join(version), version, None).unwrap();
    let registry = cluster.registry(0).unwrap();
    let reference = registry.reference(&format!("greeting:{version}"));
    let pinned = ours(cluster, &format!("push {version} {reference}")).await;
    let pinned = pinned.trim().to_owned();
    if let Some(key) = key {
        ours(cluster, &format!("sign {pinned} --key {key}.key")).await;
    }
    pinned
}

/// The object that `deploy` would send.
async fn described(cluster: &Cluster, pinned: &str, more: &str) -> Value {
    let line = format!("deploy greeting {pinned} --dry-run=client -o json{more}");
    serde_json::from_str(&ours(cluster, &line).await).unwrap()
}

async fn create(cluster: &Cluster, object: &Value) -> Output {
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    kubectl
        .args(["create", "--dry-run=server", "-f", "-"])
        .stdin(object.to_string())
        .output()
        .await
        .unwrap()
}

/// Only what this key has signed, of all that is in this registry.
fn policy(host: &str, key: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": {"name": "releases"},
        "spec": {
            "images": [{"glob": format!("{host}/**")}],
            "mode": "enforce",
            "authorities": [{"name": "release", "key": {"data": key}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_registry_lives_a_proof_spares_asking_it() {
    let mut cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    ours(&cluster, "keys generate --output-key-prefix release").await;
    let policy = policy(
        &cluster.registry(0).unwrap().host(),
        &fs_err::read_to_string(cluster.folder().join("release.pub")).unwrap(),
    );
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = kubectl
        .args(["create", "-f", "-"])
        .stdin(policy.to_string())
        .output()
        .await
        .unwrap();
    created.success().unwrap();

    let signed = publish(&cluster, "1.0.0", Some("release")).await;
    let plain = described(&cluster, &signed, "").await;
    let proven = described(&cluster, &signed, " --with-proof").await;
    let unsigned = publish(&cluster, "3.0.0", None).await;
    let unsigned = described(&cluster, &unsigned, " --with-proof").await;
    wait::until_true(LONG, "the policy is known to the webhook", || async {
        let answer = create(&cluster, &unsigned).await;
        Ok(answer.stderr.contains("BUNDLE-TRUST-001"))
    })
    .await
    .unwrap();

    // While the registry lives, it is not asked.
    let before = cluster.registry(0).unwrap().log().unwrap();
    create(&cluster, &proven).await.success().unwrap();
    assert_eq!(cluster.registry(0).unwrap().log().unwrap(), before);
    cluster.registries_mut()[0].kill().unwrap();

    let mut admitted = proven.clone();
    admitted["metadata"]["name"] = "again".into();
    let admitted = create(&cluster, &admitted).await;
    assert!(admitted.is_success(), "{admitted}");
    assert!(!admitted.stderr.contains("BUNDLE-TRUST"), "{admitted}");

    let refused = create(&cluster, &plain).await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-017"), "{refused}");
    assert!(!refused.contains("BUNDLE-TRUST-016"), "{refused}");
}
