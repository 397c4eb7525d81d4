//! Plans of a BundleDeployment. The e2e tests run `plan` with a real API server.

use axum::http::Method;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{PINNED, cluster, status};
use crate::kb_snapshot;

const PATH: &str = "/bundledeployments/web";
const LIVE: &str = "/namespaces/default/configmaps/web";
type Answer = (Method, &'static str, u16, Value);

fn deployed() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web", "uid": "u-1", "resourceVersion": "9"},
        "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source":
            {"type": "image", "image": {"ref": PINNED}}}}},
    })
}

fn class(approval: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass", "metadata": {"name": "c", "uid": "u-5"},
        "spec": {
            "provisioner": "core.rukpak.io/plain",
            "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
            "approval": {"mode": approval, "by": "Anyone"},
        },
    })
}

fn kinds() -> Answer {
    let kinds = json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{"name": "configmaps", "singularName": "", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "list", "patch"]}],
    });
    (Method::GET, "/api/v1", 200, kinds)
}

/// Returns the responses for a BundleDeployment without an inventory.
fn answers(approval: &str) -> Vec<Answer> {
    let bundles = json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleList", "metadata": {}, "items": []});
    let none = || status(404, "NotFound", "not found");
    vec![
        (Method::GET, PATH, 200, deployed()),
        kinds(),
        kinds(),
        kinds(),
        (Method::GET, "/provisionerclasses/c", 200, class(approval)),
        (Method::GET, "/bundles", 200, bundles),
        (Method::GET, "/configmaps/inventory-u-1", 404, none()),
    ]
}

fn config_map() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "default", "uid": "u-2"},
        "data": {"greeting": "hello"},
    })
}

#[test]
fn plan_shows_steps_changes_and_checks() {
    let mut context = Context::new().with_bundle();
    let mut all = answers("None");
    all.extend([
        (Method::GET, LIVE, 404, status(404, "NotFound", "not found")),
        (Method::PATCH, LIVE, 201, config_map()),
    ]);
    cluster(&mut context, all);
    kb_snapshot!(context, ["plan", "web", "./web"], @r#"
    exit code: 0
    ----- stdout -----
    STEP                 EFFECT
    CheckContent         compare the content with the content that was installed from the same template
    CheckSource          check that the class allows the source
    Verify               verify the signatures of the content
    Render               read the content and render its objects
    CheckTargets         check that the class allows the namespaces of the objects
    CheckApproval        check the approval, if the class requires one
    CheckPackageRules    check required APIs and packages, and the installed version that the package replaces
    CheckDefinitions     check that changes of CustomResourceDefinitions keep existing custom resources valid
    Authorize            check the permissions of the requester
    Watch                watch the kinds of the content
    CheckPreconditions   check that spec, class, policies and approval are unchanged
    Apply                apply the objects phase by phase
    Prune                delete recorded objects that are not part of the content
    RecordInstalled      record that the content is installed
    WatchAll             watch all kinds of the content
    ReportApproval       report the approval of the content
    Maintain             restore drift and check the health of the objects
    CheckPermissions     check that the requester still has the permissions
    DeleteOldBundles     delete Bundles that are no longer needed

    CHANGE    OBJECT                  NOTE
    created   ConfigMap/default/web   -

    CHECK                       RESULT   MESSAGE
    Class                       passes   ProvisionerClass c
    CustomResourceDefinitions   passes   no unsafe changes
    Permissions                 passes   you may apply each object
    Objects                     passes   no collisions
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    web: 1 created
    "#);
}

#[test]
fn plan_fails_without_permission() {
    let mut context = Context::new().with_bundle();
    let forbidden = status(403, "Forbidden", "configmaps \"web\" is forbidden");
    let mut all = answers("Required");
    all.extend([
        (Method::GET, LIVE, 404, status(404, "NotFound", "not found")),
        (Method::PATCH, LIVE, 403, forbidden),
    ]);
    cluster(&mut context, all);
    kb_snapshot!(context, ["plan", "web", "./web"], @r#"
    exit code: 3
    ----- stdout -----
    STEP                 EFFECT
    CheckContent         compare the content with the content that was installed from the same template
    CheckSource          check that the class allows the source
    Verify               verify the signatures of the content
    Render               read the content and render its objects
    CheckTargets         check that the class allows the namespaces of the objects
    CheckApproval        check the approval, if the class requires one
    CheckPackageRules    check required APIs and packages, and the installed version that the package replaces
    CheckDefinitions     check that changes of CustomResourceDefinitions keep existing custom resources valid
    Authorize            check the permissions of the requester
    Watch                watch the kinds of the content
    CheckPreconditions   check that spec, class, policies and approval are unchanged
    Apply                apply the objects phase by phase
    Prune                delete recorded objects that are not part of the content
    RecordInstalled      record that the content is installed
    WatchAll             watch all kinds of the content
    ReportApproval       report the approval of the content
    Maintain             restore drift and check the health of the objects
    CheckPermissions     check that the requester still has the permissions
    DeleteOldBundles     delete Bundles that are no longer needed

    CHECK                       RESULT    MESSAGE
    Class                       passes    ProvisionerClass c
    Approval                    unknown   an approval names the digest of content in a registry
    CustomResourceDefinitions   passes    no unsafe changes
    Permissions                 fails     you have no permission for ConfigMap/default/web: Error from server (Forbidden): configmaps "web" is forbidden
    Objects                     passes    no collisions
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    web: no objects
    error: bundledeployment web: checks fail: Permissions [BUNDLE-CLUSTER-032]
      hint: the messages of the checks name the cause
    "#);
}

#[test]
fn plan_of_a_folder_does_not_know_its_approval() {
    let mut context = Context::new().with_bundle();
    let mut all = answers("Required");
    all.extend([
        (Method::GET, LIVE, 404, status(404, "NotFound", "not found")),
        (Method::PATCH, LIVE, 201, config_map()),
    ]);
    cluster(&mut context, all);
    kb_snapshot!(context, ["plan", "web", "./web", "-q"], @r"
    exit code: 4
    ----- stdout -----
    STEP                 EFFECT
    CheckContent         compare the content with the content that was installed from the same template
    CheckSource          check that the class allows the source
    Verify               verify the signatures of the content
    Render               read the content and render its objects
    CheckTargets         check that the class allows the namespaces of the objects
    CheckApproval        check the approval, if the class requires one
    CheckPackageRules    check required APIs and packages, and the installed version that the package replaces
    CheckDefinitions     check that changes of CustomResourceDefinitions keep existing custom resources valid
    Authorize            check the permissions of the requester
    Watch                watch the kinds of the content
    CheckPreconditions   check that spec, class, policies and approval are unchanged
    Apply                apply the objects phase by phase
    Prune                delete recorded objects that are not part of the content
    RecordInstalled      record that the content is installed
    WatchAll             watch all kinds of the content
    ReportApproval       report the approval of the content
    Maintain             restore drift and check the health of the objects
    CheckPermissions     check that the requester still has the permissions
    DeleteOldBundles     delete Bundles that are no longer needed

    CHANGE    OBJECT                  NOTE
    created   ConfigMap/default/web   -

    CHECK                       RESULT    MESSAGE
    Class                       passes    ProvisionerClass c
    Approval                    unknown   an approval names the digest of content in a registry
    CustomResourceDefinitions   passes    no unsafe changes
    Permissions                 passes    you may apply each object
    Objects                     passes    no collisions
    ----- stderr -----
    error: bundledeployment web: the results of checks are unknown: Approval [BUNDLE-CLUSTER-033]
      hint: request the permissions that the messages of the checks name, or retry
    ");
}

#[test]
fn plan_as_json_has_steps_and_checks() {
    let mut context = Context::new().with_bundle();
    let mut all = answers("None");
    // Another actor created the object.
    all.extend([
        (Method::GET, LIVE, 200, config_map()),
        (Method::PATCH, LIVE, 200, config_map()),
    ]);
    cluster(&mut context, all);
    let output = context
        .command(&["plan", "web", "./web", "-o", "json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let data: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(data["steps"][0]["name"], "CheckContent");
    let checks = data["checks"].as_array().unwrap();
    let objects = checks.iter().find(|check| check["name"] == "Objects");
    let objects = objects.unwrap();
    assert_eq!(objects["result"], "fails", "{data}");
    let message = objects["message"].as_str().unwrap();
    assert!(message.contains("spec.collision: Adopt"), "{message}");
}
