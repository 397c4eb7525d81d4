//! Messages about clusters in which bundle-webhook cannot be installed or used.

use axum::http::Method;
use serde_json::json;

use super::diagnostics;
use crate::context::Context;
use crate::deployments::cluster::cluster;

const IMAGE: &str = "registry.example.com/bundle-webhook@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn reports_a_cluster_that_is_too_old() {
    let mut context = Context::new();
    let version = json!({
        "major": "1", "minor": "30", "gitVersion": "v1.30.2", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    cluster(&mut context, vec![(Method::GET, "/version", 200, version)]);
    let output = context.run(&["install", "--image", IMAGE]);
    insta::assert_snapshot!(diagnostics(&output), @r"
    error: the API server http://[SERVER] (context `dev` of [DIR]/home/.kube/config) has version v1.30.2; bundle-webhook needs 1.33 or newer [BUNDLE-CLUSTER-011]
      hint: upgrade the cluster first
    ");
}

#[test]
fn reports_responses_that_are_not_of_an_api_server() {
    let mut context = Context::new();
    let answer = (Method::GET, "/bundledeployments", 200, json!("<html>"));
    cluster(&mut context, vec![answer]);
    insta::assert_snapshot!(diagnostics(&context.run(&["get"])), @r"
    error: the API server http://[SERVER] (context `dev` of [DIR]/home/.kube/config) returned an invalid response [BUNDLE-CLUSTER-003]
      hint: check that the server in the kubeconfig is a Kubernetes API server
    ");
}

#[test]
fn reports_a_missing_installation() {
    let mut context = Context::new();
    cluster(&mut context, Vec::new());
    insta::assert_snapshot!(diagnostics(&context.run(&["uninstall"])), @r"
    error: the cluster http://[SERVER] (context `dev` of [DIR]/home/.kube/config) has no bundle-webhook that `kubectl bundle install` created [BUNDLE-CLUSTER-012]
      hint: check the cluster with --context, and the namespace with --system-namespace
    ");
}

/// Returns the discovery document of a kind.
fn discovery(api_version: &str, kind: &str, plural: &str) -> serde_json::Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version,
        "resources": [{
            "name": plural, "singularName": "", "namespaced": true, "kind": kind,
            "verbs": ["get", "list", "patch", "delete"],
        }],
    })
}

/// Returns the Deployment of bundle-webhook with this metadata.
fn deployment(mut metadata: serde_json::Value) -> serde_json::Value {
    metadata["name"] = "bundle-webhook".into();
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
}

#[test]
fn reports_an_installation_by_helm() {
    let mut context = Context::new();
    let version = json!({
        "major": "1", "minor": "35", "gitVersion": "v1.35.1", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    let release = deployment(json!({"annotations": {
        "meta.helm.sh/release-name": "bundle",
        "meta.helm.sh/release-namespace": "bundle-system",
    }}));
    let apps = discovery("apps/v1", "Deployment", "deployments");
    cluster(
        &mut context,
        vec![
            (Method::GET, "/version", 200, version),
            (Method::GET, "/apis/apps/v1", 200, apps),
            (Method::GET, "/deployments/bundle-webhook", 200, release),
        ],
    );
    let output = context.run(&["install", "--image", IMAGE]);
    insta::assert_snapshot!(diagnostics(&output), @r"
    error: the cluster already has deployment.apps/bundle-webhook in bundle-system; it belongs to Helm release bundle in namespace bundle-system [BUNDLE-CLUSTER-009]
      hint: upgrade the release with Helm, or remove the release first: helm uninstall bundle --namespace bundle-system
    ");
}

#[test]
fn reports_bundledeployments_that_an_uninstallation_would_remove() {
    let mut context = Context::new();
    let own = deployment(json!({"labels": {
        "app.kubernetes.io/managed-by": "kubectl-bundle",
    }}));
    let apps = discovery("apps/v1", "Deployment", "deployments");
    let kinds = discovery(
        "core.rukpak.io/v1alpha1",
        "BundleDeployment",
        "bundledeployments",
    );
    let list = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "items": [{"metadata": {"name": "web"}}, {"metadata": {"name": "shop"}}],
    });
    let mut answers = vec![
        (Method::GET, "/apis/apps/v1", 200, apps),
        (Method::GET, "/deployments/bundle-webhook", 200, own),
        (Method::GET, "/bundledeployments", 200, list),
    ];
    // The list of kinds is read for each ProvisionerClass, and for BundleDeployments.
    let again = std::iter::repeat_n(kinds, 10);
    answers.extend(again.map(|kinds| (Method::GET, "/core.rukpak.io/v1alpha1", 200, kinds)));
    cluster(&mut context, answers);
    insta::assert_snapshot!(diagnostics(&context.run(&["uninstall"])), @r"
    error: 2 BundleDeployment(s) exist: web, shop; nothing was removed [BUNDLE-CLUSTER-010]
      hint: set the handling of their installed objects: --bundle-deployments=delete or --bundle-deployments=orphan
    ");
}
