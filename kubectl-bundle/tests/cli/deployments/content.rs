//! `run` and `content`, without their requests to bundle-webhook. The e2e scenarios test these
//! requests.

use axum::http::Method;
use serde_json::{Value, json};

use super::cluster::{cluster, status};
use crate::context::Context;
use crate::kb_snapshot;

/// A certificate authority, which no test here uses for a connection.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n";
const REGISTRATION: &str = "/validatingwebhookconfigurations/bundle-webhook";

fn registration(client: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "bundle-webhook"},
        "webhooks": [{
            "name": "vbundles.core.rukpak.io", "clientConfig": client, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

fn bundle(status: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle", "metadata": {"name": "web-abc"},
        "spec": {"provisionerClassName": "c", "source": {"type": "upload", "upload": {}}},
        "status": status,
    })
}

fn unpacked() -> (Method, &'static str, u16, Value) {
    let unpacked = bundle(&json!({"phase": "Unpacked"}));
    (Method::GET, "/bundles/web-abc", 200, unpacked)
}

#[test]
fn dry_run_prints_the_object_with_the_digest_of_the_folder() {
    let context = Context::new().with_bundle();
    kb_snapshot!(context, ["run", "web", "web", "--dry-run", "-o", "yaml"], @r"
    exit code: 0
    ----- stdout -----
    apiVersion: core.rukpak.io/v1alpha1
    kind: BundleDeployment
    metadata:
      name: web
    spec:
      provisionerClassName: core-rukpak-io-plain
      template:
        metadata:
          labels:
            core.rukpak.io/upload-digest: 6a2f0b6fa7b3864aacc28e856156621068f35533
        spec:
          provisionerClassName: core-rukpak-io-plain
          source:
            type: upload
            upload: {}
    ----- stderr -----
    ");
    kb_snapshot!(context, ["run", "web", "nowhere"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: nowhere: no such file or directory [BUNDLE-USAGE-002]
      hint: pass a folder that contains bundle.yaml and manifests/, or an OCI layout
    ");
    // The folders in RukPak's examples contain only manifests.
    std::fs::remove_file(context.path().join("web/bundle.yaml")).unwrap();
    kb_snapshot!(context, ["run", "web", "web", "--dry-run"], @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web created (dry run)
    ----- stderr -----
    ");
}

#[test]
fn run_requires_a_token_before_it_writes() {
    let mut context = Context::new().with_bundle();
    let applied = cluster(&mut context, Vec::new());
    kb_snapshot!(context, ["run", "web", "web", "--as", "ana"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: bundle-webhook cannot see that you impersonate ana; the content service of bundle-webhook accepts only tokens [BUNDLE-CLUSTER-016]
      hint: act as a ServiceAccount with --as-service-account NAMESPACE/NAME; this requires permission to create serviceaccounts/token
    ");
    assert!(applied.lock().unwrap().is_empty());
}

#[test]
fn content_names_the_reason_of_a_bundle_without_content() {
    let mut context = Context::new();
    let failing = bundle(&json!({"phase": "Failing", "conditions": [{
        "type": "Unpacked", "status": "False", "reason": "UnpackFailed", "message": "invalid content",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}));
    let missing = "bundles.core.rukpak.io \"badname\" not found";
    cluster(
        &mut context,
        vec![
            (
                Method::GET,
                "/badname",
                404,
                status(404, "NotFound", missing),
            ),
            (Method::GET, "/bundles/web-abc", 200, failing),
            (Method::GET, "/bundles/web-abc", 200, bundle(&Value::Null)),
        ],
    );
    kb_snapshot!(context, ["content", "badname"], @r#"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    Error from server (NotFound): bundles.core.rukpak.io "badname" not found
    "#);
    kb_snapshot!(context, ["content", "web-abc", "-o", "tar"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: Bundle web-abc has no content: it is Failing (UnpackFailed: invalid content) [BUNDLE-CLUSTER-017]
      hint: details: kubectl describe bundle web-abc
    ");
    kb_snapshot!(context, ["content", "web-abc"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: Bundle web-abc has no content: no provisioner has reconciled it [BUNDLE-CLUSTER-017]
      hint: details: kubectl describe bundle web-abc
    ");
}

#[test]
fn address_of_the_pod_comes_from_the_registration_or_from_flags() {
    use base64::Engine as _;
    let authority = base64::engine::general_purpose::STANDARD.encode(AUTHORITY);
    let mut context = Context::new();
    let service = json!({"namespace": "bundle-system", "name": "bundle-webhook"});
    let in_pods = registration(&json!({"service": service, "caBundle": authority}));
    let at_url =
        registration(&json!({"url": "https://127.0.0.1:9/validate", "caBundle": authority}));
    let forbidden = "User \"ana\" cannot get resource";
    let selects = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "bundle-webhook"},
        "spec": {"selector": {"app": "webhook"}},
    });
    let pods = |items: Value| json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items});
    let pod = json!([{"metadata": {"name": "webhook-1"}, "status": {"phase": "Running"}}]);
    let no_forward =
        "pods \"webhook-1\" is forbidden: User \"ana\" cannot get resource \"pods/portforward\"";
    let missing = status(404, "NotFound", "not found");
    let selects = |items: Value| {
        [
            unpacked(),
            (Method::GET, REGISTRATION, 200, in_pods.clone()),
            (
                Method::GET,
                "/services/bundle-webhook",
                200,
                selects.clone(),
            ),
            (
                Method::GET,
                "/namespaces/bundle-system/pods",
                200,
                pods(items),
            ),
        ]
    };
    let mut answers = vec![
        unpacked(),
        (Method::GET, REGISTRATION, 404, missing),
        unpacked(),
        (
            Method::GET,
            REGISTRATION,
            403,
            status(403, "Forbidden", forbidden),
        ),
        unpacked(),
        (Method::GET, REGISTRATION, 200, at_url),
    ];
    answers.extend(selects(json!([])));
    answers.extend(selects(pod));
    answers.push((
        Method::GET,
        "/pods/webhook-1/portforward",
        403,
        status(403, "Forbidden", no_forward),
    ));
    cluster(&mut context, answers);
    kb_snapshot!(context, ["content", "web-abc"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: the cluster http://[SERVER] (context `dev` of [DIR]/home/.kube/config) has no bundle-webhook [BUNDLE-CLUSTER-013]
      hint: install it with `kubectl bundle install`, or select another cluster with --context
    ");
    kb_snapshot!(context, ["content", "web-abc"], @r#"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: cannot read the certificate authority of bundle-webhook: User "ana" cannot get resource [BUNDLE-CLUSTER-013]
      hint: pass the certificate with --content-ca FILE: an administrator reads it from caBundle of validatingwebhookconfiguration/bundle-webhook
    "#);
    kb_snapshot!(context, ["content", "web-abc"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: the webhook registration has a URL instead of a Service, so the pods of bundle-webhook are unknown [BUNDLE-CLUSTER-013]
      hint: pass the URL of its content service with --content-url
    ");
    kb_snapshot!(context, ["content", "web-abc"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: no pod of Service bundle-webhook.bundle-system.svc is running [BUNDLE-CLUSTER-013]
      hint: find the cause with `kubectl bundle doctor`
    ");
    kb_snapshot!(context, ["content", "web-abc"], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    Error from server (Forbidden): pods "webhook-1" is forbidden: User "ana" cannot get resource "pods/portforward"
    "#);
}

#[test]
fn content_urls_need_tls_and_nothing_but_a_path() {
    let context = Context::new();
    for url in [
        "http://bundles.example.com",
        "bundles.example.com",
        "https://ana:secret@bundles.example.com",
        "https://bundles.example.com?token=x",
    ] {
        let told = context.run(&["content", "web", "--content-url", url]);
        assert!(told.starts_with("exit code: 2"), "{told}");
        assert!(told.contains("error: --content-url: `"), "{told}");
    }
    kb_snapshot!(context, ["content", "web", "--as-service-account", "ci"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --as-service-account: `ci` is not a valid ServiceAccount [BUNDLE-USAGE-001]
      hint: write NAMESPACE/NAME, such as team-a/deployer
    ");
}
