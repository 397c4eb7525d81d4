//! Warnings of the API server about installed objects.

use serde_json::json;

use crate::scenarios::reconcile::{
    CONFIG, apply, bundle_of, deployment, get, installed, kubectl, publish, stage,
};

/// Warning of the API server about a deprecated version of the CRD.
const WARNING: &str = "example.com/v1 Jug is deprecated, use example.com/v2 Pitcher";

#[tokio::test(flavor = "multi_thread")]
async fn warning_about_a_deprecated_custom_resource_is_in_the_status() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let content = format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: jugs.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: Jug, listKind: JugList, plural: jugs, singular: jug}}
  versions:
  - name: v1
    served: true
    storage: true
    deprecated: true
    deprecationWarning: '{WARNING}'
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, properties: {{litres: {{type: integer}}}}}}
---
apiVersion: example.com/v1
kind: Jug
metadata: {{name: blue, namespace: team-a}}
spec: {{litres: 2}}
"
    );
    let one = publish(&cluster, "team/jugs:1", |f| bundle_of(f, "jugs", &content)).await;
    apply(&cluster, &deployment("jugs", &one, &json!({}))).await;
    installed(&cluster, "jugs").await;
    let object = get(&cluster, "bundledeployment jugs").await.unwrap();
    assert_eq!(object["status"]["warnings"], json!([WARNING]), "{object}");

    // The upgrade does not change the custom resource, so the warning remains.
    let content = format!("{content}---\n{CONFIG}");
    let two = publish(&cluster, "team/jugs:2", |f| bundle_of(f, "jugs", &content)).await;
    apply(&cluster, &deployment("jugs", &two, &json!({}))).await;
    installed(&cluster, "jugs").await;
    let object = get(&cluster, "bundledeployment jugs").await.unwrap();
    assert_eq!(object["status"]["installed"]["objects"], 3, "{object}");
    assert_eq!(object["status"]["warnings"], json!([WARNING]), "{object}");
}
