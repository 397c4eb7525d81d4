//! Upgrades in `deploy`, `get` and `version`, and waits for kinds that the server no longer serves.

use axum::http::Method;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{PINNED, cluster, status};
use crate::kb_snapshot;

const PATH: &str = "/bundledeployments/web";
const LIST: &str = "/bundledeployments";
const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Returns a BundleDeployment with installed version 1.4.0.
fn deployed(ready: &str, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web", "generation": 1, "resourceVersion": "8", "managedFields": [
            {"manager": "kubectl-bundle", "operation": "Apply", "apiVersion": "core.rukpak.io/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": {
                "f:spec": {"f:provisionerClassName": {}, "f:rollout": {"f:history": {}}},
            }},
        ]},
        "spec": {
            "provisionerClassName": "production",
            "rollout": {"history": 3},
            "template": {"spec": {"provisionerClassName": "production", "source": {"type": "image", "image": {"ref": PINNED}}}},
        },
        "status": {
            "observedGeneration": 1,
            "installed": {"digest": DIGEST, "version": "1.4.0", "objects": 2},
            "conditions": [
                {"type": "Installed", "status": ready, "reason": reason, "message": message, "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": ready, "reason": reason, "message": message, "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
        },
    })
}

fn upgrading() -> Value {
    let mut object = deployed("False", "InstallFailed", "1 of 2 objects");
    object["status"]["upgrade"] = json!({"bundle": "web-5a1b2c", "digest": DIGEST.replace("9f86", "0000"), "version": "1.5.0"});
    object
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeploymentList", "metadata": {"resourceVersion": "7"}, "items": items})
}

fn bundles() -> Value {
    json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleList", "metadata": {}, "items": []})
}

fn events(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": items})
}

fn version(git: &str) -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": git, "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

#[test]
fn deploy_with_replace_sets_it_and_keeps_other_settings_of_the_rollout() {
    let mut context = Context::new();
    let installed = || deployed("True", "InstallationSucceeded", "");
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, installed()),
            (Method::PATCH, PATH, 200, installed()),
        ],
    );
    context.stdout(&["deploy", "web", PINNED, "--replace", "always"]);
    assert_eq!(
        applied.lock().unwrap()[0]["spec"]["rollout"],
        json!({"history": 3, "replace": "Always"})
    );
    for (word, value) in [("ifcompleted", "IfCompleted"), ("never", "Never")] {
        let printed = context.stdout(&[
            "deploy",
            "web",
            PINNED,
            "--dry-run",
            "--replace",
            word,
            "-o",
            "json",
        ]);
        let object: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(object["spec"]["rollout"], json!({"replace": value}));
    }
}

#[test]
fn deploy_with_wait_for_sets_it_and_keeps_other_settings_of_the_rollout() {
    let mut context = Context::new();
    let installed = || deployed("True", "InstallationSucceeded", "");
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, installed()),
            (Method::PATCH, PATH, 200, installed()),
        ],
    );
    context.stdout(&["deploy", "web", PINNED, "--wait-for", "ready"]);
    assert_eq!(
        applied.lock().unwrap()[0]["spec"]["rollout"],
        json!({"history": 3, "waitFor": "Ready"})
    );
    let arguments = [
        "deploy",
        "web",
        PINNED,
        "--dry-run",
        "--wait-for=Applied",
        "-o",
        "json",
    ];
    let object: Value = serde_json::from_str(&context.stdout(&arguments)).unwrap();
    assert_eq!(object["spec"]["rollout"], json!({"waitFor": "Applied"}));
}

#[test]
fn get_shows_both_versions_during_an_upgrade() {
    let mut context = Context::new();
    cluster(
        &mut context,
        vec![
            (Method::GET, LIST, 200, list(&[upgrading()])),
            (Method::GET, "/bundles", 200, bundles()),
            (Method::GET, "/events", 200, events(&[])),
        ],
    );
    kb_snapshot!(context, ["get"], @r"
    exit code: 0
    ----- stdout -----
    NAME   VERSION          DIGEST         INSTALLED               READY                   DRIFT   CORRECTED   AGE
    web    1.4.0 -> 1.5.0   9f86d081884c   False (InstallFailed)   False (InstallFailed)   0       0           <none>
    ----- stderr -----
    ");
}

#[test]
fn get_with_watch_prints_a_row_for_each_event() {
    let mut context = Context::new();
    let installed = deployed("True", "InstallationSucceeded", "");
    let event = json!({"type": "MODIFIED", "object": upgrading()});
    cluster(
        &mut context,
        vec![
            (Method::GET, LIST, 200, list(&[installed])),
            (Method::GET, "/bundles", 200, bundles()),
            (Method::GET, "/events", 200, events(&[])),
            // The watch returns one event and ends. The server rejects the next watch.
            (Method::GET, LIST, 200, event),
            (Method::GET, "/events", 200, events(&[])),
            (
                Method::GET,
                LIST,
                403,
                status(403, "Forbidden", "bundledeployments is forbidden"),
            ),
        ],
    );
    kb_snapshot!(context, ["get", "-w"], @r"
    exit code: 3
    ----- stdout -----
    NAME   VERSION   DIGEST         INSTALLED   READY   DRIFT   CORRECTED   AGE
    web    1.4.0     9f86d081884c   True        True    0       0           <none>
    web    1.4.0 -> 1.5.0   9f86d081884c   False (InstallFailed)   False (InstallFailed)   0       0           <none>
    ----- stderr -----
    Error from server (Forbidden): bundledeployments is forbidden
    ");
}

#[test]
fn version_of_the_webhook_is_that_of_its_image() {
    let mut context = Context::new();
    let deployment = |image: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bundle-webhook", "namespace": "bundle-system"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "webhook", "image": image}]}}},
        })
    };
    let path = "/namespaces/bundle-system/deployments/bundle-webhook";
    let digest = format!("localhost:5000/bundle-webhook@{DIGEST}");
    cluster(
        &mut context,
        vec![
            (Method::GET, "/version", 200, version("v1.36.0")),
            (
                Method::GET,
                path,
                200,
                deployment("localhost:5000/team/bundle-webhook:0.3.1"),
            ),
            (Method::GET, "/version", 200, version("v1.36.0")),
            (Method::GET, path, 200, deployment(&digest)),
            (Method::GET, "/version", 200, version("v1.36.0")),
            (Method::GET, path, 403, status(403, "Forbidden", "no")),
        ],
    );
    let printed = context.stdout(&["version"]);
    let lines: Vec<&str> = printed.lines().skip(1).collect();
    assert_eq!(
        lines,
        ["Server Version: v1.36.0", "Webhook Version: v0.3.1"]
    );
    let printed = context.stdout(&["version", "-o", "json"]);
    let versions: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(versions["webhookVersion"], DIGEST);
    let printed = context.stdout(&["version"]);
    assert!(!printed.contains("Webhook Version"), "{printed}");
}

/// Returns a BundleDeployment whose content has a kind that the server does not serve.
fn without_kind(kind: &str, version: &str) -> (Value, Value) {
    let message =
        format!("required resource not found: no matches for kind {kind:?} in version {version:?}");
    let event = json!({
        "metadata": {"name": "web.1", "namespace": "default"}, "involvedObject": {}, "type": "Warning",
        "reason": "BUNDLE-INSTALL-001", "message": message,
    });
    (
        deployed("False", "InstallFailed", &message),
        events(&[event]),
    )
}

#[test]
fn wait_ends_at_kinds_that_the_version_of_the_server_no_longer_has() {
    let mut context = Context::new();
    let not_found = || (Method::GET, PATH, 404, status(404, "NotFound", "not found"));
    let (removed, told) = without_kind("CustomResourceDefinition", "apiextensions.k8s.io/v1beta1");
    let (foreign, told_foreign) = without_kind("Shop", "example.com/v1");
    cluster(
        &mut context,
        vec![
            not_found(),
            (Method::PATCH, PATH, 201, removed.clone()),
            (Method::GET, LIST, 200, list(&[removed])),
            (Method::GET, "/events", 200, told),
            (Method::GET, "/version", 200, version("v1.36.0")),
            // Another user may install the API that serves the kind.
            not_found(),
            (Method::PATCH, PATH, 201, foreign.clone()),
            (Method::GET, LIST, 200, list(&[foreign])),
            (Method::GET, "/events", 200, told_foreign),
            (Method::GET, "/version", 200, version("v1.36.0")),
            (Method::GET, LIST, 200, json!({})),
            (Method::GET, LIST, 200, list(&[])),
        ],
    );
    kb_snapshot!(context, ["deploy", "web", PINNED, "--wait", "-q"], @r#"
    exit code: 3
    ----- stdout -----
    bundledeployment.core.rukpak.io/web created
    ----- stderr -----
    error: bundledeployment web: required resource not found: no matches for kind "CustomResourceDefinition" in version "apiextensions.k8s.io/v1beta1" [BUNDLE-CHECK-001]
      hint: Kubernetes 1.22 removed apiextensions.k8s.io/v1beta1/CustomResourceDefinition, and this server is 1.36; deploy content that uses apiextensions.k8s.io/v1/CustomResourceDefinition
    "#);
    let waited = context.run(&["deploy", "web", PINNED, "--wait", "-q"]);
    assert!(waited.starts_with("exit code: 1\n"), "{waited}");
    assert!(waited.contains("was deleted during the wait"), "{waited}");
}

#[test]
fn wait_ends_at_kinds_that_only_a_newer_version_of_kubernetes_has() {
    let mut context = Context::new();
    let (newer, told) = without_kind("ResourceClaim", "resource.k8s.io/v1");
    cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 404, status(404, "NotFound", "not found")),
            (Method::PATCH, PATH, 201, newer.clone()),
            (Method::GET, LIST, 200, list(&[newer])),
            (Method::GET, "/events", 200, told),
            (Method::GET, "/version", 200, version("v1.33.4")),
        ],
    );
    kb_snapshot!(context, ["deploy", "web", PINNED, "--wait", "-q"], @r#"
    exit code: 3
    ----- stdout -----
    bundledeployment.core.rukpak.io/web created
    ----- stderr -----
    error: bundledeployment web: required resource not found: no matches for kind "ResourceClaim" in version "resource.k8s.io/v1" [BUNDLE-CHECK-001]
      hint: Kubernetes 1.34 introduced resource.k8s.io/v1/ResourceClaim, and this server is 1.33; deploy content for this version, or upgrade the cluster
    "#);
}
