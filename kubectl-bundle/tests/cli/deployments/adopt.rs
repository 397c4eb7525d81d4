//! `adopt` and `unmanage` for existing objects. The e2e tests run both commands with a real API
//! server.

use axum::http::Method;
use bundle_testkit::registry::Registry;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{Applied, PINNED, cluster, status};
use crate::kb_snapshot;

const PATH: &str = "/bundledeployments/web";
const LIVE: &str = "/namespaces/default/configmaps/web";
type Answer = (Method, &'static str, u16, Value);

fn deployment() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "metadata": {"name": "web", "uid": "u-1"},
        "spec": {"provisionerClassName": "c", "collision": "Adopt", "template": {"spec": {"provisionerClassName": "c", "source":
            {"type": "image", "image": {"ref": PINNED}}}}},
    })
}

/// Returns the ConfigMap of a Helm release.
fn config_map_of_helm_release(greeting: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u-2",
            "annotations": {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "default"},
            "managedFields": [{
                "manager": "helm", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:data": {"f:greeting": {}, "f:old": {}},
                    "f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}, "f:meta.helm.sh/release-namespace": {}}},
                },
            }],
        },
        "data": {"greeting": greeting, "old": "x"},
    })
}

/// Returns the result of the dry run, in which bundle-webhook is an additional field manager of
/// `data.greeting`.
fn after() -> Value {
    let mut object = config_map_of_helm_release("hello");
    let own = json!({
        "manager": "bundle-webhook", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:greeting": {}}},
    });
    let entries = object["metadata"]["managedFields"].as_array_mut();
    entries.unwrap().push(own);
    object
}

/// Returns a context with a pushed bundle and an API server. The API server returns the responses
/// for one preview, followed by `answers`.
fn context_for_preview(answers: Vec<Answer>) -> (Context, Registry, String, Applied) {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    context.stdout(&["push", "web", &web]);
    let kinds = json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{"name": "configmaps", "singularName": "", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "list", "patch"]}],
    });
    let missing = || status(404, "NotFound", "not found");
    let mut all = vec![
        (Method::GET, PATH, 404, missing()),
        (Method::PATCH, PATH, 201, deployment()),
        (Method::GET, "/api/v1", 200, kinds),
    ];
    all.extend(answers);
    let applied = cluster(&mut context, all);
    (context, registry, web, applied)
}

fn preview() -> Vec<Answer> {
    vec![
        (
            Method::GET,
            LIVE,
            200,
            config_map_of_helm_release("changed"),
        ),
        (Method::PATCH, LIVE, 200, after()),
    ]
}

#[test]
fn adopt_previews_objects_of_a_helm_release_and_needs_a_confirmation() {
    let (context, _registry, web, applied) = context_for_preview(preview());
    kb_snapshot!(context, ["adopt", "web", &web], @r#"
    exit code: 1
    ----- stdout -----
    --- live/v1.ConfigMap.default.web
    +++ new/v1.ConfigMap.default.web
    @@ -1,11 +1,7 @@
     apiVersion: v1
     data:
    -  greeting: changed
    -  old: x
    +  greeting: hello
     kind: ConfigMap
     metadata:
    -  annotations:
    -    meta.helm.sh/release-name: shop
    -    meta.helm.sh/release-namespace: default
       name: web
       namespace: default
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    ConfigMap/default/web: the object exists and no bundle manages it; it is adopted
    web: 1 configured
    managed by Helm release default/shop: ConfigMap/default/web
    error: no terminal is available for a confirmation [BUNDLE-CLUSTER-036]
      hint: nothing was changed; --yes confirms the change
    "#);
    // Only dry runs were sent.
    assert_eq!(applied.lock().unwrap().len(), 2);
}

#[test]
fn adopt_sets_the_collision_mode_and_names_the_remaining_step() {
    let mut answers = preview();
    answers.extend([
        (Method::GET, PATH, 404, status(404, "NotFound", "not found")),
        (Method::PATCH, PATH, 201, deployment()),
    ]);
    let (context, _registry, web, applied) = context_for_preview(answers);
    let output = context.run(&["adopt", "web", &web, "--yes"]);
    assert!(output.starts_with("exit code: 0\n"), "{output}");
    assert!(
        output.contains("kubectl delete secret -n default -l owner=helm,name=shop"),
        "{output}"
    );
    let applied = applied.lock().unwrap();
    assert_eq!(applied[2]["spec"]["collision"], "Adopt");
}

#[test]
fn adopt_rejects_content_without_existing_objects() {
    let missing = status(404, "NotFound", "not found");
    let (context, _registry, web, _) = context_for_preview(vec![
        (Method::GET, LIVE, 404, missing),
        (Method::PATCH, LIVE, 201, after()),
    ]);
    kb_snapshot!(context, ["adopt", "web", &web, "--yes", "-q"], @r"
    exit code: 1
    ----- stdout -----
    --- /dev/null
    +++ new/v1.ConfigMap.default.web
    @@ -0,0 +1,11 @@
    +apiVersion: v1
    +data:
    +  greeting: hello
    +  old: x
    +kind: ConfigMap
    +metadata:
    +  annotations:
    +    meta.helm.sh/release-name: shop
    +    meta.helm.sh/release-namespace: default
    +  name: web
    +  namespace: default
    ----- stderr -----
    error: bundledeployment web: the content has no object to adopt [BUNDLE-CLUSTER-035]
      hint: install the content with `kubectl bundle deploy`
    ");
}

#[test]
fn adopt_rejects_objects_of_another_deployment() {
    let mut foreign = after();
    foreign["metadata"]["labels"] = json!({
        "applyset.kubernetes.io/part-of": "applyset-other", "core.rukpak.io/owner-name": "shop",
    });
    let (context, _registry, web, applied) = context_for_preview(vec![
        (Method::GET, LIVE, 200, foreign),
        (Method::PATCH, LIVE, 200, after()),
    ]);
    kb_snapshot!(context, ["adopt", "web", &web, "--yes", "-q"], @r"
    exit code: 3
    ----- stdout -----
    --- live/v1.ConfigMap.default.web
    +++ new/v1.ConfigMap.default.web
    @@ -7,8 +7,5 @@
       annotations:
         meta.helm.sh/release-name: shop
         meta.helm.sh/release-namespace: default
    -  labels:
    -    applyset.kubernetes.io/part-of: applyset-other
    -    core.rukpak.io/owner-name: shop
       name: web
       namespace: default
    ----- stderr -----
    error: ConfigMap/default/web: the object belongs to bundledeployment shop, so the installation would fail [BUNDLE-CLUSTER-034]
      hint: remove the object from the content, or correct the cause; nothing was changed
    ");
    assert_eq!(applied.lock().unwrap().len(), 2);
}

#[test]
fn adopt_has_no_other_collision_mode() {
    let context = Context::new();
    let web = "registry.example.com/web:1";
    kb_snapshot!(context, ["adopt", "web", web, "--collision", "Prevent"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --collision: `kubectl bundle adopt` always sets spec.collision to Adopt [BUNDLE-USAGE-001]
      hint: omit --collision, or use `kubectl bundle deploy` to install without adoption
    ");
}

#[test]
fn unmanage_keeps_the_objects_and_deletes_the_deployment() {
    let mut context = Context::new();
    let mut object = deployment();
    object["status"] = json!({"installed": {"digest": "d", "objects": 3}});
    let mut orphaned = object.clone();
    orphaned["spec"]["deletion"] = json!({"objects": "Orphan"});
    let gone = || status(404, "NotFound", "not found");
    let list = json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeploymentList", "metadata": {"resourceVersion": "7"}, "items": []});
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, object.clone()),
            (Method::PATCH, PATH, 200, orphaned.clone()),
            (Method::DELETE, PATH, 200, orphaned),
            (Method::GET, PATH, 404, gone()),
            (Method::GET, "/bundledeployments", 200, list),
        ],
    );
    kb_snapshot!(context, ["unmanage", "web", "--wait=false"], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io "web" deleted
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    web: 3 objects stay
    "#);
    let patch = &applied.lock().unwrap()[0];
    assert_eq!(patch["spec"]["deletion"]["objects"], "Orphan");
    assert_eq!(patch["metadata"]["uid"], "u-1");
}

#[test]
fn unmanage_deletes_only_the_version_that_keeps_the_objects() {
    let mut context = Context::new();
    let mut orphaned = deployment();
    orphaned["spec"]["deletion"] = json!({"objects": "Orphan"});
    let changed = || {
        status(
            409,
            "Conflict",
            "Precondition failed: ResourceVersion in precondition",
        )
    };
    // Another client resets `spec.deletion` before the deletion.
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, orphaned.clone()),
            (Method::DELETE, PATH, 409, changed()),
            (Method::GET, PATH, 200, deployment()),
            (Method::PATCH, PATH, 200, orphaned.clone()),
            (Method::DELETE, PATH, 200, orphaned),
        ],
    );
    let printed = context.run(&["unmanage", "web", "--wait=false"]);
    assert!(printed.starts_with("exit code: 0"), "{printed}");
    let patch = &applied.lock().unwrap()[0];
    assert_eq!(patch["spec"]["deletion"]["objects"], "Orphan");
}
