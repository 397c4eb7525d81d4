//! Trees of a BundleDeployment. The e2e tests run `tree` with a real API server.

use axum::http::Method;
use bundle_core::plan::inventory::Inventory;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{cluster, status};
use crate::kb_snapshot;

const PATH: &str = "/bundledeployments/web";
const INVENTORY: &str = "/namespaces/bundle-system-state/configmaps/inventory-u-1";
type Answer = (Method, &'static str, u16, Value);

fn deployed() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web", "uid": "u-1", "generation": 1, "annotations": {
            "applyset.kubernetes.io/contains-group-kinds": "ConfigMap,Deployment.apps",
        }},
        "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {"type": "git"}}}},
        "status": {
            "activeBundle": "web-4f2a9c", "installed": {"digest": "d", "objects": 2},
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "Unhealthy", "message": "Deployment.apps/team-a/web: 0 of 1 available",
                "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

fn bundle() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": "web-4f2a9c", "uid": "u-2", "annotations": {
            "core.rukpak.io/stamp": json!({"generated_for": {"uid": "u-1", "hash": "4f2a9c"}}).to_string(),
        }},
        "spec": {"provisionerClassName": "c", "source": {"type": "git"}},
        "status": {"conditions": [{
            "type": "Unpacked", "status": "True", "reason": "UnpackSuccessful", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    })
}

/// Returns the inventory with a ConfigMap, a Deployment, and an object that does not exist.
fn inventory() -> Value {
    let mut inventory = Inventory::new("web");
    inventory.record("ConfigMap/team-a/web", "u-3");
    inventory.record("ConfigMap/team-a/gone", "u-7");
    inventory.record("Deployment.apps/team-a/web", "u-4");
    serde_json::to_value(bundle_cluster::inventory::write("u-1", &inventory, None).unwrap())
        .unwrap()
}

fn owned(kind: &str, name: &str, uid: &str, owner: &str, content: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "uid": uid, "generation": 1, "labels": {}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Owner", "name": "owner", "uid": owner, "controller": true},
        ]},
    });
    for (key, value) in content.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn list(kind: &str, items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "7"}, "items": items})
}

fn discovery() -> Vec<Answer> {
    let resources = |api_version: &str, name: &str, kind: &str| {
        json!({
            "kind": "APIResourceList", "groupVersion": api_version,
            "resources": [{"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list"]}],
        })
    };
    let version = json!({"groupVersion": "apps/v1", "version": "v1"});
    let groups = json!({"kind": "APIGroupList", "groups": [
        {"name": "apps", "versions": [version.clone()], "preferredVersion": version},
    ]});
    vec![
        (
            Method::GET,
            "/api/v1",
            200,
            resources("v1", "configmaps", "ConfigMap"),
        ),
        (Method::GET, "/apis", 200, groups),
        (
            Method::GET,
            "/apis/apps/v1",
            200,
            resources("apps/v1", "deployments", "Deployment"),
        ),
    ]
}

/// Returns the responses for a Deployment with a Pod whose image cannot be pulled.
fn objects() -> Vec<Answer> {
    let config = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "web", "namespace": "team-a", "uid": "u-3"},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "team-a", "uid": "u-4", "generation": 1},
        "spec": {"replicas": 1}, "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1},
    });
    let set = json!({"spec": {"replicas": 1}, "status": {"observedGeneration": 1, "replicas": 1, "fullyLabeledReplicas": 1}});
    let pod = json!({"status": {"phase": "Pending", "containerStatuses": [
        {"name": "web", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}},
    ]}});
    let event = json!({
        "metadata": {"name": "e", "namespace": "team-a"}, "type": "Warning", "reason": "Failed", "message": "Error: ErrImagePull",
        "involvedObject": {"kind": "Pod", "name": "web-1-a", "namespace": "team-a", "uid": "u-6"},
        // The time is in the future, so that the age is always 0s.
        "eventTime": "2126-01-01T00:00:00.000000Z",
    });
    let missing = status(404, "NotFound", "configmaps \"gone\" not found");
    let sets = list(
        "ReplicaSetList",
        &[owned("ReplicaSet", "web-1", "u-5", "u-4", &set)],
    );
    let pods = [
        owned("Pod", "web-1-a", "u-6", "u-5", &pod),
        owned("Pod", "other", "u-8", "u-9", &pod),
    ];
    vec![
        (
            Method::GET,
            "/namespaces/team-a/configmaps/web",
            200,
            config,
        ),
        (
            Method::GET,
            "/namespaces/team-a/configmaps/gone",
            404,
            missing,
        ),
        (
            Method::GET,
            "/namespaces/team-a/deployments/web",
            200,
            deployment,
        ),
        (Method::GET, "/namespaces/team-a/replicasets", 200, sets),
        (
            Method::GET,
            "/namespaces/team-a/pods",
            200,
            list("PodList", &pods),
        ),
        (
            Method::GET,
            "/namespaces/team-a/events",
            200,
            list("EventList", &[event]),
        ),
        (
            Method::GET,
            "/namespaces/default/events",
            200,
            list("EventList", &[]),
        ),
    ]
}

fn tree(context: &mut Context, answers: Vec<Answer>) {
    let mut all = vec![
        (Method::GET, PATH, 200, deployed()),
        (Method::GET, "/bundles/web-4f2a9c", 200, bundle()),
    ];
    all.extend(answers);
    cluster(context, all);
}

#[test]
fn tree_prints_recorded_objects_and_the_objects_that_these_own() {
    let mut context = Context::new();
    let mut answers = vec![(Method::GET, INVENTORY, 200, inventory())];
    answers.extend(discovery());
    answers.extend(objects());
    tree(&mut context, answers);
    kb_snapshot!(context, ["tree", "web"], @r"
    exit code: 0
    ----- stdout -----
    NAMESPACE   OBJECT                   AGE   HEALTH
    <none>      BundleDeployment/web     -     Waiting: not Ready: Unhealthy: Deployment.apps/team-a/web: 0 of 1 available
    <none>      ├─ Bundle/web-4f2a9c     -     Ready
    team-a      ├─ ConfigMap/gone        -     Missing
    team-a      ├─ ConfigMap/web         -     -
    team-a      └─ Deployment/web        -     Waiting: 0 of 1 replicas are available
    team-a         └─ ReplicaSet/web-1   -     Waiting: 0 of 1 replicas are available
    team-a            └─ Pod/web-1-a     -     Failed: container web: ImagePullBackOff: Back-off pulling image

    LAST SEEN   NAMESPACE   OBJECT        REASON   WARNING
    0s          team-a      Pod/web-1-a   Failed   Error: ErrImagePull
    ----- stderr -----
    ");
}

#[test]
fn tree_as_json_is_nested() {
    let mut context = Context::new();
    let mut answers = vec![(Method::GET, INVENTORY, 200, inventory())];
    answers.extend(discovery());
    answers.extend(objects());
    tree(&mut context, answers);
    let data: Value =
        serde_json::from_str(&context.stdout(&["tree", "web", "-o", "json"])).unwrap();
    assert_eq!(data["children"][0]["kind"], "Bundle.core.rukpak.io");
    let deployment = &data["children"][3];
    assert_eq!(deployment["kind"], "Deployment.apps");
    assert_eq!(deployment["children"][0]["children"][0]["health"], "Failed");
    assert_eq!(data["events"][0]["reason"], "Failed");
    assert_eq!(data["unread"], json!([]));
}

#[test]
fn tree_shows_kinds_without_permission_as_forbidden() {
    let forbidden = || status(403, "Forbidden", "forbidden");
    let mut context = Context::new();
    let mut answers = vec![
        (Method::GET, INVENTORY, 200, inventory()),
        (Method::GET, "/namespaces/team-a/pods", 403, forbidden()),
        (
            Method::GET,
            "/namespaces/team-a/configmaps/web",
            403,
            forbidden(),
        ),
        (
            Method::GET,
            "/namespaces/team-a/configmaps/gone",
            403,
            forbidden(),
        ),
        (Method::GET, "/namespaces/team-a/events", 403, forbidden()),
    ];
    answers.extend(discovery());
    answers.extend(objects());
    tree(&mut context, answers);
    kb_snapshot!(context, ["tree", "web"], @r"
    exit code: 0
    ----- stdout -----
    NAMESPACE   OBJECT                   AGE   HEALTH
    <none>      BundleDeployment/web     -     Waiting: not Ready: Unhealthy: Deployment.apps/team-a/web: 0 of 1 available
    <none>      ├─ Bundle/web-4f2a9c     -     Ready
    team-a      ├─ ConfigMap/gone        -     forbidden
    team-a      ├─ ConfigMap/web         -     forbidden
    team-a      └─ Deployment/web        -     Waiting: 0 of 1 replicas are available
    team-a         └─ ReplicaSet/web-1   -     Waiting: 0 of 1 replicas are available
    team-a            └─ Pod/?           -     forbidden
    ----- stderr -----
    warning: the tree is incomplete: no permission to get configmaps in namespace team-a; no permission to list events, pods in namespace team-a [BUNDLE-CLUSTER-031]
      hint: request a role with these permissions; `tree` uses your permissions
    ");
    let mut context = Context::new();
    let answers = vec![
        (Method::GET, INVENTORY, 403, forbidden()),
        (
            Method::GET,
            "/namespaces/default/events",
            200,
            list("EventList", &[]),
        ),
    ];
    tree(&mut context, answers);
    kb_snapshot!(context, ["tree", "web"], @r"
    exit code: 0
    ----- stdout -----
    NAMESPACE   OBJECT                 AGE   HEALTH
    <none>      BundleDeployment/web   -     Waiting: not Ready: Unhealthy: Deployment.apps/team-a/web: 0 of 1 available
    <none>      ├─ Bundle/web-4f2a9c   -     Ready
    <none>      ├─ ConfigMap/?         -     forbidden
    <none>      └─ Deployment/?        -     forbidden
    ----- stderr -----
    warning: the tree is incomplete: no permission to get configmaps in namespace bundle-system-state [BUNDLE-CLUSTER-031]
      hint: request permission to get the inventory; `kubectl bundle status` lists the objects by label
    ");
}

#[test]
fn tree_needs_the_inventory_of_installed_objects() {
    let mut context = Context::new();
    let missing = status(404, "NotFound", "not found");
    tree(
        &mut context,
        vec![(
            Method::GET,
            "/namespaces/other-state/configmaps/inventory-u-1",
            404,
            missing,
        )],
    );
    kb_snapshot!(context, ["tree", "web", "--state-namespace", "other-state"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: cannot read the inventory of bundledeployment web: namespace other-state has no ConfigMap inventory-u-1 [BUNDLE-CLUSTER-030]
      hint: select the namespace of the inventories with --state-namespace; `kubectl bundle status` lists the objects by label
    ");
    let context = Context::new();
    kb_snapshot!(context, ["tree", "web", "--state-namespace", "a/b"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --state-namespace: a name has lower-case letters, digits and dashes, and begins and ends with a letter or digit [BUNDLE-USAGE-001]
    ");
}
