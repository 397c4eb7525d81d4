//! Signature proof in an annotation: under an enforced policy the object is admitted without a
//! reachable registry, and altered proofs are rejected. The tests of bundle-trust cover the limits.

mod island;

use std::time::Duration;

use e2e::{Cluster, Output, Tool, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

const PROOF: &str = "core.rukpak.io/proof";
const LONG: Duration = Duration::from_secs(90);

async fn run_plugin(cluster: &Cluster, arguments: &str) -> String {
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

/// Pushes a small bundle, signs the bundle if `key` is set, and returns its pinned reference.
async fn publish(cluster: &Cluster, version: &str, key: Option<&str>) -> String {
    bundles::greeting(&cluster.folder().join(version), version, None).unwrap();
    let registry = cluster.registry(0).unwrap();
    let reference = registry.reference(&format!("greeting:{version}"));
    let pinned = run_plugin(cluster, &format!("push {version} {reference}")).await;
    let pinned = pinned.trim().to_owned();
    if let Some(key) = key {
        run_plugin(cluster, &format!("sign {pinned} --key {key}.key")).await;
    }
    pinned
}

/// Returns the object that `deploy` would apply.
async fn described(cluster: &Cluster, pinned: &str, more: &str) -> Value {
    let line = format!("deploy greeting {pinned} --dry-run=client -o json{more}");
    serde_json::from_str(&run_plugin(cluster, &line).await).unwrap()
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

/// Sends `count` concurrent reviews of this object, each with another name. Returns the number of
/// requests that the registry logs for these reviews.
async fn requests(cluster: &Cluster, object: &Value, count: usize) -> usize {
    let lines = || cluster.registry(0).unwrap().log().unwrap().lines().count();
    let client = cluster.client().await.unwrap();
    let before = lines();
    let creates = (0..count).map(|number| {
        let mut object = object.clone();
        object["metadata"]["name"] = format!("many-{number}").into();
        let path = "/apis/core.rukpak.io/v1alpha1/bundledeployments?dryRun=All";
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        client.request::<Value>(request)
    });
    for answer in futures::future::join_all(creates).await {
        answer.unwrap();
    }
    // The registry logs a request after its response. The lines of all earlier requests are above
    // the line of this request.
    let host = cluster.registry(0).unwrap().host();
    let marker = format!("/v2/marker-{before}/tags/list");
    let asking = reqwest::Client::builder().no_proxy().build().unwrap();
    asking
        .get(format!("http://{host}{marker}"))
        .send()
        .await
        .unwrap();
    wait::until_true(LONG, "the registry has logged everything", || async {
        Ok(cluster.registry(0)?.log()?.contains(&marker))
    })
    .await
    .unwrap();
    let log = cluster.registry(0).unwrap().log().unwrap();
    let since = log.lines().skip(before);
    since.take_while(|line| !line.contains(&marker)).count()
}

/// Returns a policy that requires a signature of this key for all content of the registry.
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
async fn proof_annotation_avoids_registry_requests() {
    let mut cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    run_plugin(&cluster, "keys generate --output-key-prefix release").await;
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

    // Concurrent reviews cause as many requests as one review. A result for one content is not used
    // for other content.
    let others = [
        publish(&cluster, "1.1.0", Some("release")).await,
        publish(&cluster, "1.2.0", Some("release")).await,
    ];
    let [alone, crowd] = [(&others[0], 1), (&others[1], 40)].map(async |(pinned, count)| {
        let object = described(&cluster, pinned, "").await;
        requests(&cluster, &object, count).await
    });
    let (alone, crowd) = (alone.await, crowd.await);
    assert!(alone > 0, "the registry was not asked");
    assert!(
        crowd <= 2 * alone,
        "{crowd} lines for forty, {alone} for one"
    );

    // A review with a proof causes no request to the registry, even if the registry runs.
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
