//! Removal of a bundle with a CustomResourceDefinition while custom resources of users exist, for
//! each value of `spec.deletion.customResources`. `foreign_objects` tests the default, `Refuse`.

use std::fmt::Write as _;

use e2e::Cluster;
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    apply, bundle_of, deployment, get, installed, kubectl, publish, stage,
};

use super::removed;

/// Returns two CRDs, a custom resource of each CRD, and a ConfigMap.
fn content() -> String {
    let mut text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: jugs, namespace: team-a}\n".to_owned();
    for (kind, plural) in [("Jug", "jugs"), ("Cup", "cups")] {
        write!(
            text,
            "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: {kind}, listKind: {kind}List, plural: {plural}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, properties: {{litres: {{type: integer}}}}}}
---
apiVersion: example.com/v1
kind: {kind}
metadata: {{name: packaged, namespace: team-a}}
spec: {{litres: 1}}
"
        )
        .unwrap();
    }
    text
}

/// Objects of [`content`], except the definition and the custom resources of kind `Jug`.
const OTHERS: [&str; 2] = ["configmap jugs -n team-a", "crd cups.example.com"];

/// Installs the content with this value of `spec.deletion.customResources`, adds a custom resource
/// of a user, and deletes the BundleDeployment.
async fn install_and_remove(cluster: &Cluster, reference: &str, custom_resources: &str) {
    let more = json!({
        "collision": "Adopt",
        "deletion": {"customResources": custom_resources},
    });
    apply(cluster, &deployment("jugs", reference, &more)).await;
    installed(cluster, "jugs").await;
    let own = json!({
        "apiVersion": "example.com/v1", "kind": "Jug",
        "metadata": {"name": "of-ana", "namespace": "team-b"}, "spec": {"litres": 2},
    });
    apply(cluster, &own).await;
    kubectl(cluster, "delete bundledeployment jugs --wait=false").await;
    removed(cluster, "jugs").await;
    for what in OTHERS {
        assert_eq!(get(cluster, what).await, None, "{custom_resources}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_orphans_or_deletes_custom_resources_of_users_as_the_spec_allows() {
    let (cluster, _webhook) = stage().await;
    for namespace in ["team-a", "team-b"] {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
    }
    let text = content();
    let one = publish(&cluster, "team/jugs:1", |f| bundle_of(f, "jugs", &text)).await;

    install_and_remove(&cluster, &one, "Orphan").await;
    let jug = get(&cluster, "jugs of-ana -n team-b").await.unwrap();
    assert_eq!(jug["metadata"]["deletionTimestamp"], Value::Null);
    assert_eq!(jug["spec"]["litres"], 2);
    let definition = get(&cluster, "crd jugs.example.com").await.unwrap();
    assert_eq!(definition["metadata"]["deletionTimestamp"], Value::Null);
    // The CRD no longer belongs to a BundleDeployment.
    assert_eq!(definition["metadata"]["labels"], Value::Null);
    // The custom resource of the bundle was deleted.
    assert_eq!(get(&cluster, "jugs packaged -n team-a").await, None);

    install_and_remove(&cluster, &one, "Delete").await;
    assert_eq!(get(&cluster, "crd jugs.example.com").await, None);
    let names = kubectl(&cluster, "api-resources --api-group=example.com -o name").await;
    assert_eq!(names, "");
}
