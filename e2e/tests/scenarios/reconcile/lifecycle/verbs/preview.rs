//! Previews of upgrades and drift with `diff`, compared with the upgrade itself.

use e2e::Output;
use serde_json::{Value, json};

use super::plugin;
use crate::scenarios::reconcile::{CONFIG, bundle_of, get, kubectl, publish, stage};

const OLD: &str = "---
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: team-a}
data: {text: old}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: team-a}
stringData: {password: first-secret}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: web, namespace: team-a}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
";
const NEW: &str = "---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: team-a}
stringData: {password: second-secret}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: web, namespace: team-a}
rules: [{apiGroups: [''], resources: [configmaps, secrets], verbs: [get]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-b}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'registry.example.com/web:1.4.0'}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-b}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: first, namespace: team-b}
spec: {size: 1}
";

/// Returns key and change of each object of a diff.
fn changes(output: &Output) -> Vec<(String, String)> {
    let data: Value = serde_json::from_str(&output.stdout).unwrap();
    let objects = data["objects"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut changes: Vec<_> = objects
        .map(|object| (text(&object["object"]), text(&object["change"])))
        .collect();
    changes.sort();
    changes
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_shows_the_changes_that_the_upgrade_makes() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let first = format!("{CONFIG}{OLD}");
    let second = format!("{}{NEW}", CONFIG.replace("hello", "changed"));
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", &first)).await;
    let two = publish(&cluster, "team/web:2", |f| bundle_of(f, "web", &second)).await;
    let deployed = plugin(&cluster, &format!("deploy web {one} --wait")).await;
    deployed.success().unwrap();
    assert_eq!(plugin(&cluster, "diff web").await.code, Some(0));

    let before = get(&cluster, "configmaps,secrets -n team-a").await;
    let text = plugin(&cluster, &format!("diff web {two}")).await;
    assert_eq!(text.code, Some(1), "{text}");
    for expected in [
        "-  text: hello\n+  text: changed\n",
        "-  password: \"*** (before)\"\n+  password: \"*** (after)\"\n",
        "+++ /dev/null\n",
        "+  size: 1\n",
    ] {
        assert!(text.stdout.contains(expected), "{expected}\n{text}");
    }
    for expected in [
        "RBAC: Role/team-a/web gains get secrets\n",
        "Images: + registry.example.com/web:1.4.0\n",
        "CRDs: widgets.example.com created: v1 (stored)\n",
        "web: 4 created, 3 configured, 1 deleted\n",
    ] {
        assert!(text.stderr.contains(expected), "{expected}\n{text}");
    }
    assert!(!text.stdout.contains("secret\n"), "{text}");
    let data = plugin(&cluster, &format!("diff web {two} -o json")).await;
    let change = |key: &str, change: &str| (key.to_owned(), change.to_owned());
    assert_eq!(
        changes(&data),
        [
            change("ConfigMap/team-a/old", "deleted"),
            change("ConfigMap/team-a/web", "configured"),
            change(
                "CustomResourceDefinition.apiextensions.k8s.io/widgets.example.com",
                "created"
            ),
            change("Deployment.apps/team-b/web", "created"),
            change("Namespace/team-b", "created"),
            change("Role.rbac.authorization.k8s.io/team-a/web", "configured"),
            change("Secret/team-a/login", "configured"),
            change("Widget.example.com/team-b/first", "created"),
        ]
    );
    let line = format!("deploy web {two} --dry-run=server --show=diff");
    let shown = plugin(&cluster, &line).await;
    assert!(shown.stdout.ends_with(&text.stdout), "{shown}");
    shown.success().unwrap();

    // Nothing was changed.
    assert_eq!(get(&cluster, "configmaps,secrets -n team-a").await, before);
    assert!(get(&cluster, "namespace team-b").await.is_none());

    let upgraded = plugin(&cluster, &format!("deploy web {two} --wait")).await;
    upgraded.success().unwrap();
    let none = plugin(&cluster, "diff web").await;
    assert_eq!(none.stdout, "", "{none}");
    assert_eq!(none.code, Some(0), "{none}");
    let back = plugin(&cluster, &format!("diff web {one} -o name")).await;
    assert!(back.stdout.contains("Namespace/team-b\n"), "{back}");
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_shows_drift_with_the_permissions_of_the_user() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let line = format!("deploy web {one} --drift report --wait");
    plugin(&cluster, &line).await.success().unwrap();
    let patch = json!({"data": {"text": "drifted"}});
    let line = format!("patch configmap web -n team-a --type merge -p {patch}");
    kubectl(&cluster, &line.replace(": ", ":")).await;
    let drift = plugin(&cluster, "diff web").await;
    assert_eq!(drift.code, Some(1), "{drift}");
    let expected = "-  text: drifted\n+  text: hello\n";
    assert!(drift.stdout.contains(expected), "{drift}");

    kubectl(
        &cluster,
        "create clusterrole reader --verb get,list --resource bundledeployments.core.rukpak.io,configmaps",
    )
    .await;
    kubectl(
        &cluster,
        "create clusterrolebinding reader --clusterrole reader --user reader@example.com",
    )
    .await;
    let denied = plugin(&cluster, "diff web --as reader@example.com").await;
    let message = denied.failure(3).unwrap();
    assert!(message.contains("[BUNDLE-CLUSTER-021]"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_marks_objects_that_cannot_be_changed() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let immutable = format!("{CONFIG}immutable: true\n");
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", &immutable)).await;
    let changed = immutable.replace("hello", "changed");
    let more = CONFIG.replace("name: web", "name: foreign");
    let two = publish(&cluster, "team/web:2", |f| {
        bundle_of(f, "web", &format!("{changed}---\n{more}"))
    })
    .await;
    let deployed = plugin(&cluster, &format!("deploy web {one} --wait")).await;
    deployed.success().unwrap();
    kubectl(&cluster, "create configmap foreign -n team-a").await;
    let output = plugin(&cluster, &format!("diff web {two}")).await;
    assert_eq!(output.code, Some(1), "{output}");
    for expected in [
        "ConfigMap/team-a/web: ",
        "the upgrade fails",
        "ConfigMap/team-a/foreign: the object exists and no bundle manages it, so the installation would fail without spec.collision: Adopt",
        "web: 1 configured, 1 replaced\n",
    ] {
        assert!(output.stderr.contains(expected), "{expected}\n{output}");
    }
}
