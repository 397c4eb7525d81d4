//! Verbs that change several BundleDeployments: `pause`, `resume`, `delete` and `unmanage`.

use axum::http::Method;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{PINNED, cluster, status};
use crate::kb_snapshot;

const LIST: &str = "/bundledeployments";
const WEB: &str = "/bundledeployments/web";
const LOST: &str = "/bundledeployments/lost";
const SHOP: &str = "/bundledeployments/shop";
type Answer = (Method, &'static str, u16, Value);

fn deployment(name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": name, "uid": "u-1", "managedFields": [{"manager": "kubectl-bundle"}]},
        "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source":
            {"type": "image", "image": {"ref": PINNED}}}}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

fn running(name: &str) -> Value {
    deployment(name, &json!({}))
}

fn paused(name: &str) -> Value {
    deployment(name, &json!({"paused": true}))
}

fn orphaned(name: &str) -> Value {
    deployment(name, &json!({"deletion": {"objects": "Orphan"}}))
}

/// Returns the response for the missing BundleDeployment `lost`.
fn lost(method: Method) -> Answer {
    let message = "bundledeployments.core.rukpak.io \"lost\" not found";
    (method, LOST, 404, status(404, "NotFound", message))
}

#[test]
fn pause_continues_after_a_missing_deployment() {
    let mut context = Context::new();
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, WEB, 200, running("web")),
            (Method::PATCH, WEB, 200, paused("web")),
            lost(Method::GET),
            (Method::GET, SHOP, 200, running("shop")),
            (Method::PATCH, SHOP, 200, paused("shop")),
            (Method::GET, WEB, 200, paused("web")),
        ],
    );
    kb_snapshot!(context, ["pause", "web", "lost", "shop", "-q"], @r#"
    exit code: 1
    ----- stdout -----
    bundledeployment.core.rukpak.io/web paused
    bundledeployment.core.rukpak.io/shop paused
    ----- stderr -----
    Error from server (NotFound): bundledeployments.core.rukpak.io "lost" not found
    "#);
    kb_snapshot!(context, ["pause", "web"], @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web already paused
    ----- stderr -----
    ");
    let patch = json!({"spec": {"paused": true}});
    assert_eq!(*applied.lock().unwrap(), [patch.clone(), patch]);
}

#[test]
fn resume_removes_the_field_of_paused_deployments() {
    let mut context = Context::new();
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, WEB, 200, paused("web")),
            (Method::PATCH, WEB, 200, running("web")),
            (Method::GET, SHOP, 200, running("shop")),
        ],
    );
    kb_snapshot!(context, ["resume", "web", "shop"], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web resumed
    bundledeployment.core.rukpak.io/shop already resumed
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    "#);
    let patch = json!({"spec": {"paused": null}});
    assert_eq!(*applied.lock().unwrap(), [patch]);
}

#[test]
fn pause_prints_names_objects_and_dry_runs() {
    let mut context = Context::new();
    let read = |name: &str, path| (Method::GET, path, 200, running(name));
    let applied = cluster(
        &mut context,
        vec![
            read("web", WEB),
            read("shop", SHOP),
            read("web", WEB),
            read("web", WEB),
            read("shop", SHOP),
            read("web", WEB),
            (Method::PATCH, WEB, 200, paused("web")),
        ],
    );
    kb_snapshot!(context, ["pause", "web", "shop", "--dry-run=client"], @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web paused (dry run)
    bundledeployment.core.rukpak.io/shop paused (dry run)
    ----- stderr -----
    ");
    let mut expected = paused("web");
    expected["metadata"] = json!({"name": "web", "uid": "u-1"});
    let printed = context.stdout(&["pause", "web", "--dry-run", "-o", "json"]);
    let object: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(object, expected);
    let printed = context.stdout(&["pause", "web", "shop", "--dry-run", "-o", "json"]);
    let list: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][0], expected);
    assert_eq!(list["items"][1]["spec"]["paused"], true);
    // The dry runs sent no patch.
    assert!(applied.lock().unwrap().is_empty());
    kb_snapshot!(context, ["pause", "web", "-o", "name", "-q"], @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web
    ----- stderr -----
    ");
}

#[test]
fn errors_of_several_deployments_have_the_name() {
    let mut context = Context::new();
    let denied = "admission webhook \"vbundledeployments.core.rukpak.io\" denied the request: BUNDLE-REVIEW-012: no";
    let rejected = |path| (Method::PATCH, path, 403, status(403, "Forbidden", denied));
    cluster(
        &mut context,
        vec![
            (Method::GET, WEB, 200, running("web")),
            rejected(WEB),
            (Method::GET, SHOP, 200, running("shop")),
            rejected(SHOP),
            (Method::GET, WEB, 200, running("web")),
            rejected(WEB),
        ],
    );
    kb_snapshot!(context, ["pause", "web", "shop", "-q"], @r#"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    Error from server (Forbidden): bundledeployment web: admission webhook "vbundledeployments.core.rukpak.io" denied the request: BUNDLE-REVIEW-012: no
    Error from server (Forbidden): bundledeployment shop: admission webhook "vbundledeployments.core.rukpak.io" denied the request: BUNDLE-REVIEW-012: no
    "#);
    kb_snapshot!(context, ["pause", "web", "-q"], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    Error from server (Forbidden): admission webhook "vbundledeployments.core.rukpak.io" denied the request: BUNDLE-REVIEW-012: no
    "#);
}

#[test]
fn unmanage_continues_after_a_missing_deployment_and_waits_for_the_others() {
    let mut context = Context::new();
    let gone = json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeploymentList", "metadata": {"resourceVersion": "7"}, "items": []});
    let applied = cluster(
        &mut context,
        vec![
            lost(Method::GET),
            (Method::GET, WEB, 200, running("web")),
            (Method::PATCH, WEB, 200, orphaned("web")),
            (Method::DELETE, WEB, 200, orphaned("web")),
            (Method::GET, SHOP, 200, orphaned("shop")),
            (Method::DELETE, SHOP, 200, orphaned("shop")),
            (Method::GET, LIST, 200, gone.clone()),
            (Method::GET, LIST, 200, gone),
        ],
    );
    kb_snapshot!(context, ["unmanage", "lost", "web", "shop"], @r#"
    exit code: 1
    ----- stdout -----
    bundledeployment.core.rukpak.io "web" deleted
    bundledeployment.core.rukpak.io "shop" deleted
    ----- stderr -----
    Error from server (NotFound): bundledeployments.core.rukpak.io "lost" not found
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    web: nothing is installed
    shop: nothing is installed
    waiting for web to be gone
    web is gone; its objects stay without the labels of bundle-webhook
    waiting for shop to be gone
    shop is gone; its objects stay without the labels of bundle-webhook
    "#);
    let applied = applied.lock().unwrap();
    assert_eq!(applied.len(), 1);
    assert_eq!(applied[0]["spec"]["deletion"]["objects"], "Orphan");
}

#[test]
fn delete_continues_after_a_missing_deployment() {
    let mut context = Context::new();
    let mut answers = Vec::new();
    for _ in 0..2 {
        answers.extend([
            lost(Method::GET),
            lost(Method::DELETE),
            (Method::GET, WEB, 200, running("web")),
            (Method::DELETE, WEB, 200, running("web")),
        ]);
    }
    cluster(&mut context, answers);
    kb_snapshot!(context, ["delete", "lost", "web", "--wait=false", "-q"], @r#"
    exit code: 1
    ----- stdout -----
    bundledeployment.core.rukpak.io "web" deleted
    ----- stderr -----
    Error from server (NotFound): bundledeployments.core.rukpak.io "lost" not found
    "#);
    kb_snapshot!(context, ["delete", "lost", "web", "--wait=false", "-q", "--ignore-not-found"], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io "web" deleted
    ----- stderr -----
    "#);
}
