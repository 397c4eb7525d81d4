//! Callers of the webhook: the webhook accepts only requests of an API server, and only while the
//! registrations are intact. Other clients on the network can obtain the address and the
//! certificate authority of the webhook.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use e2e::host::plain_http;
use e2e::{Cluster, Webhook, WebhookOptions, wait};
use futures::stream;
use serde_json::{Value, json};

use crate::scenarios::objects::{get, kubectl};

const SOON: Duration = Duration::from_secs(60);
const VALIDATING: &str = "validatingwebhookconfiguration";
const MUTATING: &str = "mutatingwebhookconfiguration";

/// Returns a client that trusts the webhook's certificate authority, which every user with
/// permission to read a registration can obtain. Each request has its own connection, because the
/// webhook closes the connections of unknown callers after a few requests.
pub(in crate::scenarios) async fn another_user(cluster: &Cluster) -> reqwest::Client {
    let encoded = kubectl(
        cluster,
        "get secret bundle-webhook-tls -n bundle-system-state -o jsonpath={.data.ca-bundle\\.crt}",
    )
    .await;
    let authority = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded);
    let authority = reqwest::Certificate::from_pem(&authority.unwrap()).unwrap();
    reqwest::Client::builder()
        .tls_certs_only([authority])
        .no_proxy()
        .pool_max_idle_per_host(0)
        .timeout(SOON)
        .build()
        .unwrap()
}

fn bundle(name: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {
            "provisionerClassName": "core-rukpak-io-plain",
            "source": {"type": "git", "git": {"repository": "https://git.example.com/web.git", "ref": {"branch": "main"}}},
        },
    })
}

/// Returns the AdmissionReview that an API server posts when an administrator creates a Bundle.
fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "name": "forged",
            "kind": {"group": "core.rukpak.io", "version": "v1alpha1", "kind": "Bundle"},
            "resource": {"group": "core.rukpak.io", "version": "v1alpha1", "resource": "bundles"},
            "userInfo": {"username": "admin", "groups": ["system:masters"]},
            "object": bundle("forged"),
        },
    })
}

async fn post(client: &reqwest::Client, address: SocketAddr, path: &str) -> (u16, String) {
    let response = client
        .post(format!("https://{address}{path}"))
        .body(review().to_string())
        .send()
        .await
        .unwrap();
    let status = response.status().as_u16();
    (status, response.text().await.unwrap())
}

/// Returns the distinct paths of a registration.
async fn paths(cluster: &Cluster, registration: &str) -> BTreeSet<String> {
    let object = get(cluster, &format!("{registration} bundle-webhook")).await;
    let object = object.unwrap();
    let webhooks = object["webhooks"].as_array().unwrap();
    let path = |webhook: &Value| {
        let url = webhook["clientConfig"]["url"].as_str().unwrap();
        format!("/{}", url.splitn(4, '/').last().unwrap())
    };
    webhooks.iter().map(path).collect()
}

/// Waits until the webhook has set the path of a registration, and returns this path.
async fn path(cluster: &Cluster, registration: &str) -> String {
    wait::until(SOON, "the registration has one path", || async {
        let paths = paths(cluster, registration).await;
        let [only] = Vec::from_iter(paths)
            .try_into()
            .map_err(|all| anyhow::anyhow!("{all:?}"))?;
        Ok((String::len(&only) > "/validate/".len() + 20).then_some(only))
    })
    .await
    .unwrap()
}

async fn readiness(webhook: &Webhook) -> (u16, String) {
    let url = format!("http://{}/readyz", webhook.health_address());
    plain_http::get(&url).await.unwrap()
}

async fn until_ready(webhook: &Webhook) {
    wait::until_true(SOON, "the webhook is ready", || async {
        Ok(readiness(webhook).await.0 == 200)
    })
    .await
    .unwrap();
}

/// Waits until `/readyz` returns 503 with a line that contains `text`.
async fn until_not_ready(webhook: &Webhook, text: &str) {
    wait::until_true(SOON, text, || async {
        let (status, body) = readiness(webhook).await;
        anyhow::ensure!(status == 503 && body.contains(text), "{status}: {body}");
        Ok(true)
    })
    .await
    .unwrap();
}

async fn create(cluster: &Cluster, object: &Value) -> e2e::Output {
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    kubectl
        .args(["create", "--dry-run=server", "-f", "-"])
        .stdin(object.to_string())
        .output()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_caller_gets_404_before_the_body_is_read() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let client = another_user(&cluster).await;
    let address = webhook.address();
    let guess = "a".repeat(64);
    for path in [
        "/",
        "/mutate",
        "/mutate/",
        "/validate",
        &format!("/mutate/{guess}"),
        &format!("/validate/{guess}"),
        &format!("/mutate/{guess}/mutate"),
        "/mutate/..%2f",
        "/metrics",
    ] {
        let (status, body) = post(&client, address, path).await;
        assert_eq!((status, body.contains("patch")), (404, false), "{path}");
    }
    let got = client.get(format!("https://{address}/mutate"));
    assert_eq!(got.send().await.unwrap().status().as_u16(), 404);

    // The webhook also responds to a request whose body never ends.
    let endless = stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let response = client
        .post(format!("https://{address}/mutate/{guess}"))
        .body(reqwest::Body::wrap_stream(endless))
        .timeout(Duration::from_secs(60))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 404);

    let metrics = webhook.metrics().await.unwrap();
    let counted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("bundle_unknown_callers_total "))
        .unwrap();
    assert!(counted.parse::<u32>().unwrap() >= 11, "{counted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_known_path_while_a_registration_is_altered_or_missing() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let client = another_user(&cluster).await;
    let leaked = path(&cluster, MUTATING).await;
    let (status, body) = post(&client, webhook.address(), &leaked).await;
    assert_eq!((status, body.contains("\"patch\"")), (200, true), "{body}");

    // The validating registration is altered, so the API server may admit writes without a review.
    let altered = r#"[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]"#;
    kubectl(
        &cluster,
        &format!("patch {VALIDATING} bundle-webhook --type=json --patch={altered}"),
    )
    .await;
    until_not_ready(&webhook, "vbundles.core.rukpak.io: failurePolicy is Ignore").await;
    for path in [&leaked, &path(&cluster, MUTATING).await] {
        let (status, body) = post(&client, webhook.address(), path).await;
        assert_eq!((status, body.contains("\"patch\"")), (503, false), "{body}");
    }
    let refused = create(&cluster, &bundle("altered"))
        .await
        .failure(1)
        .unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-041"), "{refused}");
    let restored = altered.replace("Ignore", "Fail");
    kubectl(
        &cluster,
        &format!("patch {VALIDATING} bundle-webhook --type=json --patch={restored}"),
    )
    .await;
    until_ready(&webhook).await;
    wait::until_true(SOON, "another path after the gap", || async {
        Ok(path(&cluster, MUTATING).await != leaked)
    })
    .await
    .unwrap();
    webhook.wait_for_admission().await.unwrap();

    // The validating registration is missing. The API server still calls the mutating webhook,
    // which rejects the request.
    let before = path(&cluster, MUTATING).await;
    kubectl(&cluster, &format!("delete {VALIDATING} bundle-webhook")).await;
    until_not_ready(
        &webhook,
        "ValidatingWebhookConfiguration bundle-webhook does not exist",
    )
    .await;
    let (status, _) = post(&client, webhook.address(), &before).await;
    assert_eq!(status, 503);
    let refused = create(&cluster, &bundle("missing"))
        .await
        .failure(1)
        .unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-041"), "{refused}");
    webhook.register().await.unwrap();
    until_ready(&webhook).await;
    assert_ne!(path(&cluster, MUTATING).await, before);
    webhook.wait_for_admission().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn path_rotation_fails_no_review_on_any_replica() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let rotating = |admission| WebhookOptions {
        admission,
        flags: ["--path-rotation-interval", "10s"]
            .map(ToOwned::to_owned)
            .into(),
        ..WebhookOptions::default()
    };
    let first = cluster.start_webhook(rotating(true)).await.unwrap();
    let second = cluster.start_webhook(rotating(false)).await.unwrap();
    let client = another_user(&cluster).await;
    let (began, mut seen) = (Instant::now(), BTreeSet::new());
    while seen.len() < 3 {
        assert!(began.elapsed() < SOON * 3, "{seen:?}");
        let created = create(&cluster, &bundle("rotated")).await;
        created.success().unwrap();
        let path = path(&cluster, MUTATING).await;
        for address in [first.address(), second.address()] {
            let (status, body) = post(&client, address, &path).await;
            assert_eq!(status, 200, "{address}{path}: {body}");
        }
        seen.insert(path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_client_authority_the_path_alone_is_not_enough() {
    let cluster = Cluster::builder()
        .registries(0)
        .webhook_client_certificate(true)
        .start()
        .await
        .unwrap();
    let authority = cluster.authority_file().display().to_string();
    let options = WebhookOptions {
        flags: vec!["--client-ca-file".to_owned(), authority],
        ..WebhookOptions::default()
    };
    // The API server presents its client certificate, so admission works.
    let webhook = cluster.start_webhook(options).await.unwrap();
    create(&cluster, &bundle("known")).await.success().unwrap();
    let api = cluster.client().await.unwrap();
    let url = webhook.admission_url(&api, "mutate").await.unwrap();
    let client = another_user(&cluster).await;
    let answer = client.post(url).body(review().to_string()).send().await;
    assert!(answer.is_err(), "{answer:?}");
}
