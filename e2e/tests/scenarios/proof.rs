//! Proof that an object carries: under an enforced policy it is admitted while its registry is dead, and nothing that was tampered with is.
//! The webhook and the API server talk over loopback, so what is taken away is the registry and not all routes. Limits are tables in bundle-trust.

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

fn with_proof(object: &Value, proof: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"] = json!({ PROOF: proof });
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_admits_without_a_registry_and_a_false_one_does_not() {
    let mut cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    for key in ["release", "other"] {
        ours(
            &cluster,
            &format!("keys generate --output-key-prefix {key}"),
        )
        .await;
    }
    let policy = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": {"name": "releases"},
        "spec": {
            "images": [{"glob": format!("{}/**", cluster.registry(0).unwrap().host())}],
            "mode": "enforce",
            "authorities": [{"name": "release", "key": {
                "data": fs_err::read_to_string(cluster.folder().join("release.pub")).unwrap(),
            }}],
        },
    });
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
    let proof = proven["metadata"]["annotations"][PROOF].as_str().unwrap();
    let foreign = publish(&cluster, "2.0.0", Some("other")).await;
    let foreign = described(&cluster, &foreign, " --with-proof").await;
    let other = foreign["metadata"]["annotations"][PROOF].as_str().unwrap();
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

    let cut = &proof[..proof.len() / 2];
    for (name, text) in [("other content", other), ("cut", cut), ("nothing", "")] {
        let refused = create(&cluster, &with_proof(&plain, text)).await;
        let why = refused.failure(1).unwrap();
        assert!(why.contains("BUNDLE-TRUST-016"), "{name}: {why}");
        assert!(why.contains("BUNDLE-REVIEW-017"), "{name}: {why}");
    }
    // A whole proof whose signatures are by another key: there may be others in the registry, and that cannot be known.
    let refused = create(&cluster, &foreign).await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-017"), "{refused}");
    // The right proof with other content in its place is the same as the wrong proof.
    let refused = create(&cluster, &with_proof(&foreign, proof)).await;
    let why = refused.failure(1).unwrap();
    assert!(why.contains("BUNDLE-TRUST-016"), "{why}");
}
