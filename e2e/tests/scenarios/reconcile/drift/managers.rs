//! Changes by any field manager, including the field manager of the webhook, and with every verb.
//! Some changes are in the same second as a write of the webhook, or while the webhook is down.
//! `inventory` tests which objects belong to a BundleDeployment.

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::lifecycle::{until_no_writes, writes};
use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, staged,
};

/// Field manager of bundle-webhook.
const OURS: &str = "bundle-webhook";

const CONTENT: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: team-a, annotations: {example.com/tier: gold}}
data: {text: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example.com/web:1}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: web, namespace: team-a}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [get]}
";

/// Returns the current values of the fields that the webhook applies to an object.
async fn applied(cluster: &Cluster, what: &str) -> Value {
    let live = get(cluster, &format!("{what} -n team-a")).await.unwrap();
    let mut value = json!({
        "apiVersion": live["apiVersion"], "kind": live["kind"],
        "metadata": {"name": "web", "namespace": "team-a", "labels": live["metadata"]["labels"]},
    });
    match live["kind"].as_str() {
        Some("ConfigMap") => {
            value["data"] = live["data"].clone();
            value["metadata"]["annotations"] = live["metadata"]["annotations"].clone();
        }
        Some("Role") => value["rules"] = live["rules"].clone(),
        _ => {
            value["spec"] = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1"}]}}});
        }
    }
    value
}

async fn send(cluster: &Cluster, line: &str, object: &Value) {
    let tool = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let output = tool
        .args(line.split(' '))
        .stdin(object.to_string())
        .output()
        .await
        .unwrap();
    output.success().unwrap();
}

/// Applies an object server-side as `manager`, with force.
async fn apply_as(cluster: &Cluster, manager: &str, object: &Value) {
    let line =
        format!("apply --server-side --force-conflicts --field-manager {manager} -f - -o name");
    send(cluster, &line, object).await;
}

async fn until_value(cluster: &Cluster, how: &str, what: &str, pointer: &str, expected: &Value) {
    wait::until_true(LONG, &format!("{what} after {how}"), || async {
        let object = get(cluster, &format!("{what} -n team-a"))
            .await
            .unwrap_or_default();
        let found = object.pointer(pointer).cloned().unwrap_or_default();
        if found == *expected {
            return Ok(true);
        }
        anyhow::bail!("{found} {}", object["metadata"])
    })
    .await
    .unwrap();
}

/// Returns the changes that the scenarios make: object, JSON pointer, value before the change, and
/// value after the change.
fn targets() -> [(&'static str, &'static str, Value, Value); 5] {
    [
        ("configmap web", "/data/text", json!("hello"), json!("evil")),
        (
            "configmap web",
            "/metadata/annotations/example.com~1tier",
            json!("gold"),
            json!("mud"),
        ),
        ("deployment web", "/spec/replicas", json!(0), json!(1)),
        (
            "deployment web",
            "/spec/template/spec/containers/0/image",
            json!("registry.example.com/web:1"),
            json!("registry.example.com/evil:1"),
        ),
        (
            "role web",
            "/rules/0/verbs/0",
            json!("get"),
            json!("delete"),
        ),
    ]
}

async fn stage() -> (Cluster, e2e::Webhook) {
    let (cluster, webhook) = staged(Cluster::builder().audit(true)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONTENT)).await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;
    (cluster, webhook)
}

#[tokio::test(flavor = "multi_thread")]
async fn restores_changed_values_of_any_field_manager_and_request() {
    let (cluster, mut webhook) = stage().await;
    for manager in [OURS, "somebody"] {
        for (what, pointer, good, evil) in targets() {
            // Repeated reverts increase the backoff. The restart resets the backoff.
            webhook.restart().await.unwrap();
            until_no_drift(&cluster).await;
            let mut object = applied(&cluster, what).await;
            *object.pointer_mut(pointer).unwrap() = evil.clone();
            // The test repeats the change, also within the same second as a write of the webhook.
            for _ in 0..3 {
                apply_as(&cluster, manager, &object).await;
                let how = format!("an apply by {manager}");
                until_value(&cluster, &how, what, pointer, &good).await;
            }
            let mut live = get(&cluster, &format!("{what} -n team-a")).await.unwrap();
            *live.pointer_mut(pointer).unwrap() = evil.clone();
            live["metadata"]["resourceVersion"] = Value::Null;
            let command = format!("replace --field-manager {manager} -f - -o name");
            send(&cluster, &command, &live).await;
            let how = format!("an update by {manager}");
            until_value(&cluster, &how, what, pointer, &good).await;
            let patch = json!([{"op": "replace", "path": pointer, "value": evil}]);
            kubectl(
                &cluster,
                &format!("patch {what} -n team-a --type json --field-manager {manager} -p {patch}"),
            )
            .await;
            let how = format!("a patch by {manager}");
            until_value(&cluster, &how, what, pointer, &good).await;
        }
    }
    // The webhook never owns the status, even if its own field manager writes the status.
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "team-a"},
        "status": {"collisionCount": 7}});
    let command = format!(
        "apply --server-side --force-conflicts --subresource status --field-manager {OURS} -f - -o name"
    );
    send(&cluster, &command, &status).await;
    until_no_writes(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_managed_fields_do_not_hide_drift() {
    let (cluster, mut webhook) = stage().await;
    for down in [false, true] {
        for (what, pointer, good, evil) in targets() {
            let look = format!("{what} -n team-a --show-managed-fields");
            let before = get(&cluster, &look).await.unwrap();
            if down {
                webhook.kill().unwrap();
            }
            let mut live = before.clone();
            *live.pointer_mut(pointer).unwrap() = evil.clone();
            live["metadata"]["resourceVersion"] = Value::Null;
            send(&cluster, "replace --field-manager evil -f - -o name", &live).await;
            // A user with permission to write the object writes its former managed fields again:
            // managers, times and fields.
            let patch = json!({"metadata": {"managedFields": before["metadata"]["managedFields"]}});
            kubectl(
                &cluster,
                &format!("patch {what} -n team-a --type merge -p {patch}"),
            )
            .await;
            if down {
                webhook.start().await.unwrap();
            }
            let how = format!("forged managed fields, webhook down: {down}");
            until_value(&cluster, &how, what, pointer, &good).await;
            until_no_drift(&cluster).await;
        }
    }
}

/// Waits until the status reports no drift.
async fn until_no_drift(cluster: &Cluster) {
    wait::until_true(LONG, "nothing has drifted", || async {
        let object = get(cluster, "bundledeployment web")
            .await
            .unwrap_or_default();
        Ok(
            crate::scenarios::reconcile::condition(&object, "Drifted")["status"] == "False"
                && object["status"]["installed"]["fieldsDigest"].is_string(),
        )
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn change_with_the_field_manager_of_the_webhook_during_downtime_is_restored() {
    let (cluster, mut webhook) = stage().await;
    for (what, pointer, good, evil) in targets() {
        let mut object = applied(&cluster, what).await;
        *object.pointer_mut(pointer).unwrap() = evil;
        // The change is in the same second as a write of the webhook, which is killed immediately
        // afterwards.
        kubectl(&cluster, &format!("delete {what} -n team-a")).await;
        until_value(&cluster, "deletion", what, pointer, &good).await;
        apply_as(&cluster, OURS, &object).await;
        webhook.kill().unwrap();
        apply_as(&cluster, OURS, &object).await;
        webhook.start().await.unwrap();
        until_value(&cluster, "a restart", what, pointer, &good).await;
    }
    until_no_drift(&cluster).await;
    until_no_writes(&cluster).await;
    let before = writes(&cluster).unwrap();
    webhook.restart().await.unwrap();
    wait::until_true(LONG, "nothing is applied", || async {
        Ok(webhook
            .log()?
            .contains("all objects are unchanged: nothing is applied"))
    })
    .await
    .unwrap();
    let after = writes(&cluster).unwrap();
    assert_eq!(after, before, "writes after a restart");
}
