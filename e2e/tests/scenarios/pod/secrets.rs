//! Names from users are always one segment of a URL, and logs contain no secret of a run. `names`
//! in `bundle-core` has the rules for names.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::registry::{PASSWORD, USER};
use e2e::webhook::{NAMESPACE, STATE_NAMESPACE};
use e2e::{Cluster, Webhook, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{condition, kubectl, try_get};

const LONG: Duration = Duration::from_secs(90);
const CLASS: &str = "core-rukpak-io-plain";
/// Query that would watch all Secrets of the namespace if it were part of a URL.
const QUERY: &str = "?watch=true&timeoutSeconds=3";
const POD: &str = "system:serviceaccount:bundle-system:bundle-webhook";
/// Entries of Secrets whose values are not secret.
const PUBLIC: [&str; 6] = [
    "ca.crt",
    "ca-bundle.crt",
    "tls.crt",
    "cosign.pub",
    "namespace",
    "service-ca.crt",
];

async fn apply(cluster: &Cluster, object: &Value) -> e2e::Output {
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let applied = kubectl.args(["apply", "-f", "-"]).stdin(object.to_string());
    applied.output().await.unwrap()
}

fn bundle(name: &str, reference: &str, pull_secret: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle", "metadata": {"name": name},
        "spec": {"provisionerClassName": CLASS, "source": {"type": "image", "image": {"ref": reference, "pullSecret": pull_secret}}},
    })
}

/// Replaces the CRD with the CRD of an earlier version, which has no patterns.
async fn without_pattern(cluster: &Cluster) {
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/source/properties/image/properties/pullSecret";
    let patch = json!([
        {"op": "add", "path": format!("{field}/pattern"), "value": ".*"},
        {"op": "add", "path": format!("{field}/maxLength"), "value": 4096},
    ]);
    let patch = format!("--patch={patch}");
    let line = [
        "patch",
        "crd",
        "bundles.core.rukpak.io",
        "--type=json",
        &patch,
    ];
    cluster.kubectl(line).await.unwrap().success().unwrap();
}

/// Returns texts that must not occur in a log: the lines of each secret value, raw and in base64.
/// Short lines are omitted, because they can occur by chance.
async fn secrets_of(cluster: &Cluster) -> Vec<String> {
    let mut texts = vec![PASSWORD.to_owned()];
    texts.push(STANDARD.encode(format!("{USER}:{PASSWORD}")));
    let file = cluster
        .kubeconfig()
        .with_file_name(format!("{NAMESPACE}-bundle-webhook.kubeconfig"));
    let kubeconfig: Value = serde_json::from_slice(&fs_err::read(file).unwrap()).unwrap();
    let token = &kubeconfig["users"][0]["user"]["token"];
    texts.push(token.as_str().unwrap().to_owned());
    for namespace in [NAMESPACE, STATE_NAMESPACE] {
        let listed = kubectl(cluster, &format!("get secrets -n {namespace} -o json")).await;
        let list: Value = serde_json::from_str(&listed).unwrap();
        for secret in list["items"].as_array().unwrap() {
            for (key, value) in secret["data"].as_object().into_iter().flatten() {
                if PUBLIC.contains(&key.as_str()) {
                    continue;
                }
                let encoded = value.as_str().unwrap().to_owned();
                let decoded = STANDARD.decode(&encoded).unwrap();
                texts.push(encoded);
                texts.extend(String::from_utf8(decoded.clone()).ok());
                texts.push(format!("{decoded:?}"));
            }
        }
    }
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter(|line| line.len() >= PASSWORD.len() && !line.starts_with("-----"))
        .map(ToOwned::to_owned)
        .collect()
}

/// Returns the path of each log that contains a secret of this run, with the beginning of the line
/// that contains the secret.
async fn leaks(cluster: &Cluster) -> Vec<String> {
    let secrets = secrets_of(cluster).await;
    assert!(secrets.len() > 12, "{}", secrets.len());
    let mut found = Vec::new();
    for entry in fs_err::read_dir(cluster.logs()).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&fs_err::read(&path).unwrap()).into_owned();
        for line in text.lines() {
            if secrets.iter().any(|secret| line.contains(secret.as_str())) {
                let start: String = line.chars().take(160).collect();
                found.push(format!("{}: {start}", path.display()));
            }
        }
    }
    found
}

/// Returns the lists and watches of Secrets by the pod, and its other requests for Secrets with a
/// query, as `verb URI`.
fn queries_on_secrets(cluster: &Cluster) -> Vec<String> {
    let events = cluster.audit().unwrap();
    let sent = events.iter().filter(|event| {
        let uri = event["requestURI"].as_str().unwrap_or_default();
        let by_pod = event["user"]["username"] == POD && event["impersonatedUser"].is_null();
        // The URI of a create request ends with `?`, so an empty query is not counted.
        by_pod
            && event["objectRef"]["resource"] == "secrets"
            && (uri
                .split_once('?')
                .is_some_and(|(_, query)| !query.is_empty())
                || matches!(event["verb"].as_str(), Some("watch" | "list")))
    });
    sent.map(|event| format!("{} {}", event["verb"], event["requestURI"]))
        .collect()
}

async fn stage(options: WebhookOptions) -> (Cluster, Webhook) {
    let cluster = Cluster::builder()
        .registries(1)
        .registry_password(true)
        .audit(true)
        .start()
        .await
        .unwrap();
    let webhook = cluster.start_webhook(options).await.unwrap();
    (cluster, webhook)
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_pull_secret_with_a_query_before_any_request() {
    let (cluster, mut webhook) = stage(WebhookOptions::default()).await;
    let reference = cluster.registry(0).unwrap().reference("team/web:1");
    // Two Secrets are needed. The pod could parse a watch response with only one event as an
    // object, and would then not log the response.
    for name in ["others", "more"] {
        let others = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
            "stringData": {"password": format!("correct horse battery {name}")}});
        apply(&cluster, &others).await.success().unwrap();
    }
    let attack = bundle("attack", &reference, QUERY);

    // The schema rejects the name. Without the schema, the webhook rejects the name.
    let refused = apply(&cluster, &attack).await.failure(1);
    let schema = refused.unwrap_or_default();
    without_pattern(&cluster).await;
    let mut by_webhook = String::new();
    wait::until_true(LONG, "the API server uses the older schema", || {
        let applied = apply(&cluster, &attack);
        async {
            let text = applied.await.stderr;
            Ok(text.is_empty() || !text.contains("should match"))
        }
    })
    .await
    .unwrap();
    for name in [QUERY, "../configmaps/x", "a%2fb", "a#b", "a b"] {
        let refused = apply(&cluster, &bundle("attack", &reference, name)).await;
        by_webhook.push_str(&refused.stderr);
    }

    // The object is stored while admission is off, and changed after admission is on again.
    webhook.stop().await.unwrap();
    for kind in ["validating", "mutating"] {
        let line = format!("delete {kind}webhookconfiguration bundle-webhook");
        kubectl(&cluster, &line).await;
    }
    let stored = bundle("stored", &reference, QUERY);
    apply(&cluster, &stored).await.success().unwrap();
    webhook.register().await.unwrap();
    webhook.start().await.unwrap();
    webhook.wait_for_admission().await.unwrap();
    let touch = "annotate bundle stored core.rukpak.io/checked=again --overwrite";
    cluster.kubectl(touch.split(' ')).await.unwrap();
    wait::until_true(LONG, "the stored Bundle is reported", || async {
        let stored = try_get(&cluster, "bundle stored").await?;
        Ok(stored.unwrap_or_default()["status"].is_object())
    })
    .await
    .unwrap();

    assert_eq!(leaks(&cluster).await, Vec::<String>::new());
    assert_eq!(queries_on_secrets(&cluster), Vec::<String>::new());
    assert!(
        schema.contains("spec.source.image.pullSecret") && schema.contains("should match"),
        "{schema}"
    );
    let answers = by_webhook.matches("spec.source.image.pullSecret").count();
    assert_eq!(answers, 5, "{by_webhook}");
    assert_eq!(by_webhook.matches("denied the request").count(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_run_occurs_in_any_log() {
    let loud = "trace,kube_client=trace,kube_client::client=trace,hyper=trace,h2=trace";
    let options = WebhookOptions {
        flags: ["--log-level", loud].map(ToOwned::to_owned).into(),
        ..WebhookOptions::default()
    };
    let (cluster, webhook) = stage(options).await;
    let registry = cluster.registry(0).unwrap();
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let docker = json!({"auths": {registry.host(): {"auth": auth}}}).to_string();
    let home = cluster.folder().join("home").join(".docker");
    fs_err::create_dir_all(&home).unwrap();
    fs_err::write(home.join("config.json"), &docker).unwrap();
    let secret = |name: &str, kind: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "stringData": data,
            "metadata": {"name": name, "namespace": NAMESPACE}})
    };
    let pull = secret(
        "regcred",
        "kubernetes.io/dockerconfigjson",
        json!({".dockerconfigjson": docker}),
    );
    apply(&cluster, &pull).await.success().unwrap();
    // This Secret is no pull secret. The pod must not print content that cannot be parsed.
    let other = secret(
        "other",
        "Opaque",
        json!({"password": "correct horse battery"}),
    );
    apply(&cluster, &other).await.success().unwrap();

    let folder = cluster.folder().join("data").join("greeting");
    bundles::greeting(&folder, "1.0.0", None).unwrap();
    let folder = folder.display().to_string();
    let reference = registry.reference("team/greeting:1");
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference])
        .await
        .unwrap();
    pushed.success().unwrap();
    let deployment = |name: &str, pull_secret: &str| {
        let spec = bundle("", &reference, pull_secret)["spec"].take();
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "metadata": {"name": name},
            "spec": {"provisionerClassName": CLASS, "template": {"spec": spec}},
        })
    };
    apply(&cluster, &deployment("greeting", "regcred"))
        .await
        .success()
        .unwrap();
    wait::until_true(LONG, "greeting is installed", || async {
        let object = try_get(&cluster, "bundledeployment greeting").await?;
        Ok(condition(&object.unwrap_or_default(), "Installed")["status"] == "True")
    })
    .await
    .unwrap();
    for name in ["other", "missing"] {
        apply(&cluster, &deployment(name, name)).await;
    }
    // The webhook reads its keys again after their Secret was deleted.
    kubectl(
        &cluster,
        &format!("delete secret bundle-webhook-tls -n {STATE_NAMESPACE}"),
    )
    .await;
    wait::until_true(LONG, "the key is made anew", || async {
        let what = format!("secret bundle-webhook-tls -n {STATE_NAMESPACE}");
        Ok(try_get(&cluster, &what).await?.is_some())
    })
    .await
    .unwrap();
    webhook.wait_for_admission().await.unwrap();
    assert!(webhook.log().unwrap().contains("bundle_webhook"));
    assert_eq!(leaks(&cluster).await, Vec::<String>::new());
}
