//! Revisions in `history` and `rollback`. The e2e tests run both commands with a real API server.

use axum::http::Method;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{PINNED, cluster, status};
use crate::kb_snapshot;

const PATH: &str = "/bundledeployments/web";
const LIST: &str = "/bundles";
const FORMER: &str = "/bundles/web-1b77d0";
const OLD: &str = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752";
const NEW: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn source(digest: &str) -> Value {
    json!({"provisionerClassName": "production", "source": {
        "type": "image", "image": {"ref": format!("registry.example.com/web@{digest}")},
    }})
}

/// Returns a BundleDeployment with two revisions. The content of the newer revision is installed.
fn deployed() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web", "uid": "u-1", "generation": 2, "resourceVersion": "9", "managedFields": [
            {"manager": "kubectl-bundle", "operation": "Apply", "apiVersion": "core.rukpak.io/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": {
                "f:spec": {"f:provisionerClassName": {}, "f:config": {"f:text": {}}, "f:template": {"f:spec": {"f:provisionerClassName": {}, "f:source": {}}}},
            }},
        ]},
        "spec": {
            "provisionerClassName": "production",
            "config": {"text": "new"},
            "template": {"spec": source(NEW)},
        },
        "status": {"revisions": [
            {
                "bundle": "web-4f2a9c", "digest": NEW, "version": "1.5.0", "state": "Active", "number": 2,
                "requestedBy": "ana@example.com", "configDigest": "sha256:1", "config": {"text": "new"},
            },
            {
                "bundle": "web-1b77d0", "digest": OLD, "version": "1.4.0", "state": "Superseded", "number": 1,
                "requestedBy": "ben@example.com", "configDigest": "sha256:2", "config": {"text": "old"},
            },
        ]},
    })
}

/// Returns the BundleDeployment after a rollback.
fn deployment_after_rollback() -> Value {
    let mut object = deployed();
    object["spec"]["template"] = json!({"spec": source(OLD)});
    object["spec"]["config"] = json!({"text": "old"});
    object["metadata"]["generation"] = 3.into();
    object
}

fn bundle(name: &str, digest: &str) -> Value {
    let hash = bundle_core::review::template_hash(&json!({"spec": source(digest)}));
    let stamp = json!({"generated_for": {"uid": "u-1", "hash": hash}});
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {
            "name": name,
            "labels": {
                "core.rukpak.io/owner-kind": "BundleDeployment", "core.rukpak.io/owner-name": "web",
                "core.rukpak.io/bundle-template-hash": "1b77d0",
            },
            "annotations": {"core.rukpak.io/stamp": stamp.to_string()},
        },
        "spec": source(digest),
        "status": {"content": {"digest": digest, "specDigest": "x"}},
    })
}

fn bundles() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleList", "metadata": {},
        "items": [bundle("web-4f2a9c", NEW), bundle("web-1b77d0", OLD)],
    })
}

/// Returns the output of `rollback` if the API server returns the BundleDeployment and these
/// responses.
fn rollback(
    object: Value,
    answers: Vec<(Method, &'static str, u16, Value)>,
    arguments: &[&str],
) -> String {
    let mut context = Context::new();
    let mut all = vec![(Method::GET, PATH, 200, object)];
    all.extend(answers);
    cluster(&mut context, all);
    let mut words = vec!["rollback", "web"];
    words.extend(arguments);
    context.run(&words)
}

#[test]
fn history_lists_revisions_oldest_first() {
    let mut context = Context::new();
    let again = || (Method::GET, PATH, 200, deployed());
    cluster(
        &mut context,
        vec![again(), again(), again(), again(), again(), again()],
    );
    kb_snapshot!(context, ["history", "web"], @r"
    exit code: 0
    ----- stdout -----
    REVISION   VERSION   DIGEST         STATE        INSTALLED   REQUESTED BY
    1          1.4.0     60303ae22b99   Superseded   <none>      ben@example.com
    2          1.5.0     9f86d081884c   Active       <none>      ana@example.com
    ----- stderr -----
    ");
    kb_snapshot!(context, ["history", "web", "-o", "wide"], @r"
    exit code: 0
    ----- stdout -----
    REVISION   VERSION   DIGEST         STATE        INSTALLED   REQUESTED BY      BUNDLE       CONFIG
    1          1.4.0     60303ae22b99   Superseded   <none>      ben@example.com   web-1b77d0   recorded
    2          1.5.0     9f86d081884c   Active       <none>      ana@example.com   web-4f2a9c   recorded
    ----- stderr -----
    ");
    kb_snapshot!(context, ["history", "web", "--no-headers"], @r"
    exit code: 0
    ----- stdout -----
    1   1.4.0   60303ae22b99   Superseded   <none>   ben@example.com
    2   1.5.0   9f86d081884c   Active       <none>   ana@example.com
    ----- stderr -----
    ");
    kb_snapshot!(context, ["history", "web", "-o", "name"], @r"
    exit code: 0
    ----- stdout -----
    bundle.core.rukpak.io/web-1b77d0
    bundle.core.rukpak.io/web-4f2a9c
    ----- stderr -----
    ");
    kb_snapshot!(context, ["history", "web", "--revision", "1"], @r"
    exit code: 0
    ----- stdout -----
    Revision:      1
    State:         Superseded
    Version:       1.4.0
    Digest:        sha256:60303ae2...
    Bundle:        web-1b77d0
    Requested by:  ben@example.com
    Config:
      text: old
    ----- stderr -----
    ");
    let json = context.stdout(&["history", "web", "-o", "json"]);
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(list["items"][0]["number"], 1);
    assert_eq!(list["items"][1]["digest"], NEW);
}

#[test]
fn rollback_writes_template_and_configuration_of_the_previous_revision() {
    let mut context = Context::new();
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, deployed()),
            (Method::GET, LIST, 200, bundles()),
            (Method::GET, FORMER, 200, bundle("web-1b77d0", OLD)),
            (Method::PATCH, PATH, 200, deployment_after_rollback()),
            (Method::GET, PATH, 200, deployed()),
            (Method::PATCH, PATH, 200, deployment_after_rollback()),
        ],
    );
    kb_snapshot!(context, ["rollback", "web"], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web rolled back
    ----- stderr -----
    web rolls back to revision 1 (1.4.0)
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
      spec.config.text: new -> old
      spec.template.spec.source.image.ref: registry.example.com/web@sha256:9f86d081... -> registry.example.com/web@sha256:60303ae2...
    "#);
    let applied = applied.lock().unwrap();
    assert_eq!(applied[0]["spec"], applied[1]["spec"]);
    assert_eq!(
        applied[1]["spec"],
        json!({
            "provisionerClassName": "production",
            "config": {"text": "old"},
            "template": {"spec": source(OLD)},
        })
    );
    assert_eq!(applied[1]["metadata"]["resourceVersion"], "9");
}

#[test]
fn rollback_as_a_dry_run_of_the_client_writes_nothing() {
    let mut context = Context::new();
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, deployed()),
            (Method::GET, FORMER, 200, bundle("web-1b77d0", OLD)),
        ],
    );
    kb_snapshot!(context, ["rollback", "web", "--to", "1", "--dry-run", "--keep-config"], @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web rolled back (dry run)
    ----- stderr -----
    web rolls back to revision 1 (1.4.0)
    ");
    assert!(applied.lock().unwrap().is_empty());
}

#[test]
fn rollback_returns_to_the_active_revision_during_an_upgrade() {
    let mut object = deployed();
    object["spec"]["template"]["spec"] = source(&OLD.replace("6030", "0000"));
    object["spec"]["config"] = json!({"text": "new"});
    let answers = vec![
        (Method::GET, LIST, 200, bundles()),
        (
            Method::GET,
            "/bundles/web-4f2a9c",
            200,
            bundle("web-4f2a9c", NEW),
        ),
    ];
    insta::assert_snapshot!(rollback(object, answers, &["--dry-run"]), @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web rolled back (dry run)
    ----- stderr -----
    web rolls back to revision 2 (1.5.0)
    ");
}

#[test]
fn rollback_fails_without_a_matching_revision() {
    let mut first = deployed();
    first["status"]["revisions"].as_array_mut().unwrap().pop();
    let list = || vec![(Method::GET, LIST, 200, bundles())];
    insta::assert_snapshot!(rollback(first, list(), &[]), @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: bundledeployment web has no former revision [BUNDLE-CLUSTER-023]
      hint: `kubectl bundle history web` lists the revisions; spec.rollout.history is the number of former revisions that are kept
    ");
    insta::assert_snapshot!(rollback(deployed(), Vec::new(), &["--to", "7"]), @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: bundledeployment web has no revision 7 [BUNDLE-CLUSTER-023]
      hint: its revisions are 2, 1; `kubectl bundle history web` describes them
    ");
    let missing = status(
        404,
        "NotFound",
        "bundles.core.rukpak.io \"web-1b77d0\" not found",
    );
    let answers = vec![(Method::GET, FORMER, 404, missing)];
    insta::assert_snapshot!(rollback(deployed(), answers, &["--to", "1"]), @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: revision 1 (1.4.0) cannot be installed: Bundle web-1b77d0 does not exist any more [BUNDLE-CLUSTER-024]
      hint: install its content by its digest: kubectl bundle deploy web REPOSITORY@sha256:60303ae2...
    ");
    let other = bundle("web-1b77d0", &OLD.replace("6030", "0000"));
    let answers = vec![(Method::GET, FORMER, 200, other)];
    insta::assert_snapshot!(rollback(deployed(), answers, &["--to", "1"]), @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: revision 1 (1.4.0) cannot be installed: Bundle web-1b77d0 was created again with other content [BUNDLE-CLUSTER-024]
      hint: install its content by its digest: kubectl bundle deploy web REPOSITORY@sha256:60303ae2...
    ");
    let active = vec![(
        Method::GET,
        "/bundles/web-4f2a9c",
        200,
        bundle("web-4f2a9c", NEW),
    )];
    insta::assert_snapshot!(rollback(deployed(), active, &["--to", "2"]), @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: bundledeployment web already has template and configuration of revision 2 (1.5.0) [BUNDLE-CLUSTER-025]
      hint: select another revision with --to; `kubectl bundle history web` lists the revisions
    ");
}

#[test]
fn rollback_fails_if_the_configuration_is_unknown_or_would_stay() {
    let former = || vec![(Method::GET, FORMER, 200, bundle("web-1b77d0", OLD))];
    let mut unrecorded = deployed();
    unrecorded["status"]["revisions"][1]["config"] = Value::Null;
    insta::assert_snapshot!(rollback(unrecorded, former(), &["--to", "1"]), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: the configuration of revision 1 (1.4.0) is not recorded: it was too large [BUNDLE-CLUSTER-026]
      hint: --keep-config keeps the current spec.config; if the content needs another configuration, correct spec.config afterwards
    ");
    let mut kept = deployment_after_rollback();
    kept["spec"]["config"]["color"] = "red".into();
    let mut answers = former();
    answers.push((Method::PATCH, PATH, 200, kept));
    insta::assert_snapshot!(rollback(deployed(), answers, &["--to", "1"]), @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: other field managers set fields that revision 1 (1.4.0) does not have: spec.config.color: unset -> red [BUNDLE-CLUSTER-027]
      hint: remove these fields with `kubectl edit bundledeployment web` or in the repository of the GitOps tool; nothing was changed
    ");
}

#[test]
fn verbs_report_a_missing_deployment_like_kubectl() {
    let mut context = Context::new();
    let missing = || {
        let message = "bundledeployments.core.rukpak.io \"web\" not found";
        (Method::GET, PATH, 404, status(404, "NotFound", message))
    };
    cluster(&mut context, vec![missing(), missing(), missing()]);
    for (verb, code) in [("history", 1), ("rollback", 1), ("diff", 2)] {
        let expected = format!(
            "exit code: {code}\n----- stdout -----\n----- stderr -----\nError from server (NotFound): bundledeployments.core.rukpak.io \"web\" not found\n"
        );
        assert_eq!(context.run(&[verb, "web"]), expected);
    }
    assert!(PINNED.ends_with(NEW));
}
