//! Previews: `diff`, and `deploy --dry-run=server --show=diff`. The e2e tests run both commands
//! with a real API server.

use axum::http::Method;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{Applied, PINNED, cluster, status};
use crate::kb_snapshot;

const PATH: &str = "/bundledeployments/web";
const LIVE: &str = "/namespaces/default/configmaps/web";
type Answer = (Method, &'static str, u16, Value);

fn deployed(source: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web", "uid": "u-1", "resourceVersion": "9", "annotations": {
            "applyset.kubernetes.io/contains-group-kinds": "ConfigMap",
            "applyset.kubernetes.io/additional-namespaces": "default",
        }},
        "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": source}}},
    })
}

fn image() -> Value {
    json!({"type": "image", "image": {"ref": PINNED}})
}

/// Returns a ConfigMap that bundle-webhook applied.
fn config_map(name: &str, greeting: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": "default", "uid": "u-2", "resourceVersion": "3",
            "labels": {
                "core.rukpak.io/owner-kind": "BundleDeployment",
                "core.rukpak.io/owner-name": "web",
                "applyset.kubernetes.io/part-of": "applyset-4uZSPPIUWPhxLAKC2gPZRT4IA4k52KdJ_byJlyYF7bg-v1",
            },
            "managedFields": [{"manager": "bundle-webhook", "operation": "Apply"}],
        },
        "data": {"greeting": greeting},
    })
}

fn kinds() -> Answer {
    let kinds = json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{"name": "configmaps", "singularName": "", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "list", "patch"]}],
    });
    (Method::GET, "/api/v1", 200, kinds)
}

fn list(items: &[Value]) -> Answer {
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items});
    (Method::GET, "/configmaps", 200, list)
}

/// Starts an API server that returns the BundleDeployment and these responses.
fn preview(context: &mut Context, answers: Vec<Answer>) -> Applied {
    let mut all = vec![
        (Method::GET, PATH, 200, deployed(&image())),
        kinds(),
        kinds(),
        kinds(),
    ];
    all.extend(answers);
    cluster(context, all)
}

#[test]
fn diff_shows_changed_and_deleted_objects() {
    let mut context = Context::new().with_bundle();
    let applied = preview(
        &mut context,
        vec![
            (Method::GET, LIVE, 200, config_map("web", "changed")),
            (Method::PATCH, LIVE, 200, config_map("web", "hello")),
            list(&[config_map("web", "changed"), config_map("old", "x")]),
            (Method::GET, "/configmaps/old", 200, config_map("old", "x")),
        ],
    );
    kb_snapshot!(context, ["diff", "web", "./web"], @r#"
    exit code: 1
    ----- stdout -----
    --- live/v1.ConfigMap.default.web
    +++ new/v1.ConfigMap.default.web
    @@ -1,6 +1,6 @@
     apiVersion: v1
     data:
    -  greeting: changed
    +  greeting: hello
     kind: ConfigMap
     metadata:
       labels:
    --- live/v1.ConfigMap.default.old
    +++ /dev/null
    @@ -1,11 +0,0 @@
    -apiVersion: v1
    -data:
    -  greeting: x
    -kind: ConfigMap
    -metadata:
    -  labels:
    -    applyset.kubernetes.io/part-of: applyset-4uZSPPIUWPhxLAKC2gPZRT4IA4k52KdJ_byJlyYF7bg-v1
    -    core.rukpak.io/owner-kind: BundleDeployment
    -    core.rukpak.io/owner-name: web
    -  name: old
    -  namespace: default
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    web: 1 configured, 1 deleted
    "#);
    let applied = applied.lock().unwrap();
    assert_eq!(applied[0]["metadata"]["uid"], "u-2");
    assert_eq!(
        applied[0]["metadata"]["labels"]["core.rukpak.io/owner-name"],
        "web"
    );
}

#[test]
fn diff_without_differences_ends_with_code_0() {
    let mut context = Context::new().with_bundle();
    preview(
        &mut context,
        vec![
            (Method::GET, LIVE, 200, config_map("web", "hello")),
            (Method::PATCH, LIVE, 200, config_map("web", "hello")),
            list(&[config_map("web", "hello")]),
        ],
    );
    kb_snapshot!(context, ["diff", "web", "./web", "-q"], @r"
    exit code: 0
    ----- stdout -----
    ----- stderr -----
    ");
}

#[test]
fn diff_as_json_has_objects_and_summary() {
    let mut context = Context::new().with_bundle();
    let missing = status(404, "NotFound", "configmaps \"web\" not found");
    preview(
        &mut context,
        vec![
            (Method::GET, LIVE, 404, missing),
            (Method::PATCH, LIVE, 201, config_map("web", "hello")),
            list(&[]),
        ],
    );
    let output = context
        .command(&["diff", "web", "./web", "-o", "json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let data: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(data["objects"][0]["object"], "ConfigMap/default/web");
    assert_eq!(data["objects"][0]["change"], "created");
    assert_eq!(data["objects"][0]["after"]["data"]["greeting"], "hello");
    assert_eq!(data["summary"]["created"], 1);
}

#[test]
fn diff_runs_the_external_program() {
    let mut context = Context::new()
        .with_bundle()
        .with("KUBECTL_EXTERNAL_DIFF", "diff -rN -U0")
        .with("PATH", "/usr/bin:/bin");
    preview(
        &mut context,
        vec![
            (Method::GET, LIVE, 200, config_map("web", "changed")),
            (Method::PATCH, LIVE, 200, config_map("web", "hello")),
            list(&[]),
        ],
    );
    let output = context.run(&["diff", "web", "./web"]);
    assert!(output.starts_with("exit code: 1\n"), "{output}");
    for line in ["\n-  greeting: changed\n", "\n+  greeting: hello\n"] {
        assert!(output.contains(line), "{output}");
    }
}

/// Returns the output of `diff` if the dry run of the only object fails.
fn rejected(code: u16, reason: &str, message: &str) -> String {
    let mut context = Context::new().with_bundle();
    preview(
        &mut context,
        vec![
            (Method::GET, LIVE, 200, config_map("web", "hello")),
            (Method::PATCH, LIVE, code, status(code, reason, message)),
            list(&[]),
        ],
    );
    context.run(&["diff", "web", "./web"])
}

#[test]
fn diff_reports_objects_that_cannot_be_previewed() {
    let message = "configmaps \"web\" is forbidden: User \"u\" cannot patch it";
    insta::assert_snapshot!(rejected(403, "Forbidden", message), @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    web: no objects
    error: ConfigMap/default/web: Error from server (Forbidden): configmaps "web" is forbidden: User "u" cannot patch it [BUNDLE-CLUSTER-021]
      hint: correct the object, or request the permission: the preview uses your permissions
    "#);
    let message = "failed calling webhook \"quota.example.com\"";
    insta::assert_snapshot!(rejected(503, "ServiceUnavailable", message), @r#"
    exit code: 4
    ----- stdout -----
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    web: no objects
    error: ConfigMap/default/web: Error from server (ServiceUnavailable): failed calling webhook "quota.example.com" [BUNDLE-CLUSTER-020]
      hint: run the command again
    "#);
}

#[test]
fn diff_needs_content_that_the_plugin_can_read() {
    let mut context = Context::new();
    let git = json!({"type": "git", "git": {"repository": "https://git.example.com/web", "ref": {"branch": "main"}}});
    let object = deployed(&git);
    cluster(&mut context, vec![(Method::GET, PATH, 200, object)]);
    kb_snapshot!(context, ["diff", "web"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: the template has a source of type git, whose content only the webhook reads [BUNDLE-CLUSTER-022]
      hint: name the content as an argument: a reference, or a folder with the same files
    ");
}

#[test]
fn deploy_shows_a_diff_only_in_a_dry_run_of_the_server() {
    let context = Context::new();
    kb_snapshot!(context, ["deploy", "web", PINNED, "--show=diff"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --show: a preview needs a dry run by the API server [BUNDLE-USAGE-001]
      hint: add --dry-run=server
    ");
}
