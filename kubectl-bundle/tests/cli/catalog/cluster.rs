//! Messages about clusters that an installation does not fit.

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
    error: the cluster http://[SERVER] (context `dev` of [DIR]/home/.kube/config) has no installation by this program [BUNDLE-CLUSTER-012]
      hint: check the cluster with --context, and the namespace with --system-namespace
    ");
}
