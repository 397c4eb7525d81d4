//! Admission responses of a real API server: messages that users and scripts rely on. `kubectl
//! bundle check` must return the same results.

use e2e::webhook::{SharedCluster, shared};
use e2e::{Cluster, WebhookOptions, bundles};
use serde_json::{Value, json};

const CLASS: &str = "core-rukpak-io-plain";
const REGISTRY_CLASS: &str = "core-rukpak-io-registry";

fn bundle(name: &str, class: &str, source: Value) -> Value {
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class}
    });
    object["spec"]["source"] = source;
    object
}

fn image(reference: &str) -> Value {
    json!({"type": "image", "image": {"ref": reference}})
}

fn deployment(name: &str, class: &str, source: Value) -> Value {
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {
            "provisionerClassName": class,
            "template": {"spec": {"provisionerClassName": class}}
        }
    });
    object["spec"]["template"]["spec"]["source"] = source;
    object
}

/// Pushes a small bundle and returns its pinned reference.
async fn publish(cluster: &Cluster, name: &str, kubernetes: Option<&str>) -> String {
    let folder = cluster.folder().join("data").join(name);
    bundles::greeting(&folder, "1.0.0", kubernetes).unwrap();
    let reference = cluster
        .registry(0)
        .unwrap()
        .reference(&format!("{name}:1.0.0"));
    let folder = folder.display().to_string();
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference])
        .await
        .unwrap();
    pushed.success().unwrap().lines().last().unwrap().to_owned()
}

/// Creates an object as a server-side dry run, which the webhook reviews.
async fn create(cluster: &Cluster, object: &Value) -> e2e::Output {
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    kubectl
        .args(["create", "--dry-run=server", "-f", "-"])
        .stdin(object.to_string())
        .output()
        .await
        .unwrap()
}

async fn check(cluster: &Cluster, object: &Value) -> e2e::Output {
    let plugin = cluster.plugin().await.unwrap();
    plugin
        .args(["check", "-f", "-", "-o", "json"])
        .stdin(object.to_string())
        .output()
        .await
        .unwrap()
}

async fn stage() -> SharedCluster {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_invalid_specs_with_messages_of_rukpak() {
    let cluster = stage().await;
    let both = json!({"type": "image", "image": {"ref": "registry.example.com/web:1"}, "http": {"url": "https://example.com/web.tgz"}});
    let git = |directory: &str| json!({"type": "git", "git": {"repository": "https://git.example.com/web.git", "directory": directory, "ref": {"branch": "main"}}});
    for (object, text) in [
        (
            bundle("both", CLASS, both),
            "must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ),
        (
            bundle("none", CLASS, json!({"type": "image"})),
            "must validate one and only one schema (oneOf). Found none valid",
        ),
        (
            bundle(
                "class",
                "invalid/class-name",
                image("registry.example.com/web:1"),
            ),
            "Invalid value: \"invalid/class-name\"",
        ),
        (
            bundle(&"b".repeat(53), CLASS, image("registry.example.com/web:1")),
            "metadata.name: Too long: may not be longer than 52",
        ),
        (
            deployment(&"d".repeat(46), CLASS, image("registry.example.com/web:1")),
            "metadata.name: Too long: may not be longer than 45",
        ),
        (
            bundle("outside", CLASS, git("../outside")),
            "bundle.spec.source.git.directory begins with \"../\": directory must define path within the repository",
        ),
        (
            bundle(
                "mismatch",
                CLASS,
                json!({"type": "git", "image": {"ref": "registry.example.com/web:1"}}),
            ),
            "bundle.spec.source.git must be set for source type \"git\"",
        ),
    ] {
        let printed = create(&cluster, &object).await.failure(1).unwrap();
        assert!(printed.contains(text), "expected `{text}` in `{printed}`");
    }
    for directory in ["..", "/", "/etc", "a/../../b"] {
        create(&cluster, &bundle("outside", CLASS, git(directory)))
            .await
            .failure(1)
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_class_is_admitted_with_a_warning() {
    let cluster = stage().await;
    let admitted = create(
        &cluster,
        &bundle(
            "foreign",
            "somebody-else",
            image("registry.example.com/web:1"),
        ),
    )
    .await;
    assert!(admitted.is_success(), "{admitted}");
    assert!(admitted.stderr.contains("Warning:"), "{admitted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_admission_return_the_same_verdict() {
    let cluster = stage().await;
    let fits = publish(&cluster, "fits", Some(">=1.30 <1.40")).await;
    let too_new = publish(&cluster, "too-new", Some(">=1.90")).await;
    let nowhere = cluster.registry(0).unwrap().reference("nowhere:1");
    for (object, code) in [
        (bundle("fits", CLASS, image(&fits)), 0),
        (deployment("fits", CLASS, image(&fits)), 0),
        (bundle("too-new", CLASS, image(&too_new)), 3),
        (deployment("too-new", CLASS, image(&too_new)), 3),
        (bundle("foreign", "somebody-else", image(&fits)), 0),
        // The class requires another format than the `plain+v0` of the content.
        (bundle("other", REGISTRY_CLASS, image(&fits)), 3),
        (deployment("other", REGISTRY_CLASS, image(&fits)), 3),
        (
            bundle(
                "escape",
                CLASS,
                json!({"type": "git", "git": {"repository": "https://git.example.com/a.git", "directory": "..", "ref": {"tag": "v1"}}}),
            ),
            3,
        ),
        (bundle("unreadable", CLASS, image("Not A Reference")), 3),
        // The image does not exist yet. The result is a warning, because no signature is required
        // and the image is checked again before the installation.
        (bundle("nowhere", CLASS, image(&nowhere)), 0),
    ] {
        let checked = check(&cluster, &object).await;
        let created = create(&cluster, &object).await;
        assert_eq!(
            created.is_success(),
            checked.code == Some(0),
            "{created}\n{checked}"
        );
        let findings: Value = serde_json::from_str(&checked.stdout)
            .unwrap_or_else(|error| panic!("{error}: {checked}"));
        let mut codes = Vec::new();
        collect_codes(&findings, &mut codes);
        for (code, message) in &codes {
            // Messages that this project copies from RukPak have no diagnostic code.
            let reported = created.stderr.contains(code) || created.stderr.contains(message);
            assert!(reported, "check says {code}, admission does not: {created}");
        }
        if object["spec"]["provisionerClassName"] == REGISTRY_CLASS {
            assert!(created.stderr.contains("BUNDLE-FORMAT-025"), "{created}");
        }
        if code == 0 {
            assert!(created.is_success(), "{created}");
        } else {
            assert!(!codes.is_empty(), "a refusal without a code: {checked}");
            assert!(matches!(checked.code, Some(1..=4)), "{checked}");
        }
    }
}

/// Collects the codes and messages of all findings, at any depth of the report.
fn collect_codes(value: &Value, codes: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            if let Some(code) = fields.get("code").and_then(Value::as_str) {
                let message = fields
                    .get("message")
                    .and_then(Value::as_str)
                    .unwrap_or(code);
                codes.push((code.to_owned(), message.to_owned()));
            }
            fields
                .values()
                .for_each(|value| collect_codes(value, codes));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_codes(value, codes)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_and_huge_reviews_get_an_error_response() {
    let cluster = shared().await.unwrap();
    let webhook = cluster.webhook().await.unwrap();
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        // Each request has its own connection, because the server closes a connection after a body
        // that is too large.
        .pool_max_idle_per_host(0)
        .build()
        .unwrap();
    for path in ["validate", "mutate"] {
        let api = cluster.client().await.unwrap();
        let url = webhook.admission_url(&api, path).await.unwrap();
        for body in [
            "",
            "not json",
            "{}",
            "[]",
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a"}}"#,
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":7}"#,
        ] {
            let answer = client
                .post(&url)
                .header("content-type", "application/json")
                .body(body)
                .send()
                .await
                .unwrap();
            let status = answer.status();
            let text = answer.text().await.unwrap();
            assert!(status.is_success(), "{path} {body}: {status} {text}");
            let review: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                review["response"]["allowed"], false,
                "{path} {body}: {text}"
            );
        }
        let huge = vec![b' '; 9 << 20];
        let answer = client
            .post(&url)
            .header("content-type", "application/json")
            .body(huge)
            .send()
            .await;
        // The server may close the connection before the whole body is sent. If the client receives
        // a response, its status is 413.
        if let Ok(answer) = answer {
            assert_eq!(answer.status().as_u16(), 413);
        }
    }
    assert!(webhook.metrics().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn vendor_suffix_of_the_server_is_ignored_and_shown_in_the_message() {
    let cluster = Cluster::builder()
        .server_version("v1.36.3-eks-abcdef0")
        .registries(1)
        .start()
        .await
        .unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let fits = publish(&cluster, "fits", Some(">=1.36.3 <1.37")).await;
    let admitted = create(&cluster, &bundle("fits", CLASS, image(&fits))).await;
    assert!(admitted.is_success(), "{admitted}");
    let old = publish(&cluster, "old", Some("<1.30")).await;
    let refused = create(&cluster, &bundle("old", CLASS, image(&old)))
        .await
        .failure(1)
        .unwrap();
    for text in ["<1.30", "v1.36.3-eks-abcdef0"] {
        assert!(refused.contains(text), "expected `{text}` in `{refused}`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_of_classes_and_policies_are_rejected_without_validation_by_the_client() {
    let cluster = stage().await;
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": kind,
            "metadata": {"name": "misspelled"}, "spec": spec,
        })
    };
    let class = |field: &str, value: Value| {
        let mut spec = json!({"provisioner": "core.rukpak.io/plain"});
        spec[field] = value;
        object("ProvisionerClass", spec)
    };
    let policy = |field: &str, authority: &str| {
        let mut spec = json!({
            "images": [{"glob": "registry.example.com/**"}],
            "authorities": [{"keyless": {"identities": [{"issuer": "https://a.example.com", "subject": "a"}]}}],
        });
        spec[field] = 1.into();
        spec["authorities"][0][authority] = json!([]);
        object("SignaturePolicy", spec)
    };
    for (object, field) in [
        (class("signature", "Required".into()), "spec.signature"),
        (
            class("sources", json!({"host": ["a.example.com"]})),
            "spec.sources.host",
        ),
        (policy("treshold", "attestations"), "spec.treshold"),
        (
            policy("threshold", "attestation"),
            "spec.authorities[0].attestation",
        ),
    ] {
        let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
        let kubectl = kubectl.args(["create", "--validate=ignore", "--dry-run=server", "-f", "-"]);
        let created = kubectl.stdin(object.to_string()).output().await.unwrap();
        let refused = created.failure(1).unwrap();
        assert!(
            refused.contains(&format!("{field}: unknown field")),
            "{refused}"
        );
    }
}
