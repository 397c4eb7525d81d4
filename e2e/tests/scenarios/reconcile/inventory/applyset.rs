//! ApplySet labels and annotations (KEP-3659), with which other tools find the installed objects.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use e2e::Cluster;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::scenarios::reconcile::{
    apply, bundle_of, deployment, get, installed, kubectl, publish, stage,
};

/// Returns the content of one version, with objects in two namespaces. `last` is the kind of an
/// additional object, which differs for each version.
fn content(last: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: web, namespace: team-a}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: web, namespace: team-b}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: web}}
rules: []
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: team-a}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: registry.example.com/web:1}}]}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: jugs.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: Jug, listKind: JugList, plural: jugs}}
  versions:
  - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}
---
apiVersion: example.com/v1
kind: Jug
metadata: {{name: blue, namespace: team-a}}
---
apiVersion: v1
kind: {last}
metadata: {{name: last, namespace: team-a}}
"
    )
}

/// Returns the objects of [`content`] as `KIND.GROUP/NAMESPACE/NAME`.
fn objects(last: &str) -> BTreeSet<String> {
    [
        "ConfigMap/team-a/web",
        "ConfigMap/team-b/web",
        "ClusterRole.rbac.authorization.k8s.io//web",
        "Deployment.apps/team-a/web",
        "CustomResourceDefinition.apiextensions.k8s.io//jugs.example.com",
        "Jug.example.com/team-a/blue",
        &format!("{last}/team-a/last"),
    ]
    .map(str::to_owned)
    .into()
}

/// Returns the objects that a tool finds with only the labels and annotations of the parent.
async fn members(cluster: &Cluster) -> BTreeSet<String> {
    let parent = get(cluster, "bundledeployment web").await.unwrap();
    let metadata = &parent["metadata"];
    let annotation = |name: &str| {
        let value = &metadata["annotations"][format!("applyset.kubernetes.io/{name}")];
        value.as_str().unwrap_or_default().to_owned()
    };
    // KEP-3659: base64(sha256(<name>.<namespace>.<kind>.<group>)), with the alphabet for URLs.
    let hash = Sha256::digest("web..BundleDeployment.core.rukpak.io");
    let id = format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(hash));
    assert_eq!(metadata["labels"]["applyset.kubernetes.io/id"], id);
    assert!(annotation("tooling").starts_with("bundle-webhook/v"));
    assert_eq!(annotation("additional-namespaces"), "team-a,team-b");
    let mut found = BTreeSet::new();
    for kind in annotation("contains-group-kinds").split(',') {
        let line = format!("get {kind} -A -o json -l applyset.kubernetes.io/part-of={id}");
        let list: Value = serde_json::from_str(&kubectl(cluster, &line).await).unwrap();
        let items = list["items"].as_array().unwrap();
        assert!(!items.is_empty(), "no object of kind {kind}");
        for item in items {
            let part = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
            found.insert(format!("{kind}/{}/{}", part("namespace"), part("name")));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn applyset_of_a_deployment_selects_exactly_the_installed_objects() {
    let (cluster, _webhook) = stage().await;
    for namespace in ["team-a", "team-b"] {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
    }
    // This object does not belong to the bundle.
    kubectl(&cluster, "create configmap foreign -n team-a").await;
    for last in ["ServiceAccount", "Secret"] {
        let text = content(last);
        let reference = format!("team/web:{}", last.to_lowercase());
        let pinned = publish(&cluster, &reference, |f| bundle_of(f, "web", &text)).await;
        apply(&cluster, &deployment("web", &pinned, &json!({}))).await;
        installed(&cluster, "web").await;
        assert_eq!(members(&cluster).await, objects(last));
    }
    // KEP-3659 also requires a label on the CRD of each parent kind.
    let definition = "crd bundledeployments.core.rukpak.io";
    let definition = get(&cluster, definition).await.unwrap();
    let labels = &definition["metadata"]["labels"];
    assert_eq!(labels["applyset.kubernetes.io/is-parent-type"], "true");
}
