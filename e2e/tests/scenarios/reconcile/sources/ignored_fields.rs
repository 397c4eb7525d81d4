//! Parts of manifests that have no effect in the API server. The reconciler ignores these parts,
//! and no field manager owns these parts.

use e2e::wait;
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, stage,
};

/// Content as written by generators: a list, nulls, an unnecessary namespace, and a certificate
/// that another program injects.
const GENERATED: &str = "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: shop, namespace: shop, creationTimestamp: null}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
  spec:
    replicas: null
    selector: {matchLabels: {app: web}}
    template:
      metadata: {labels: {app: web}, creationTimestamp: null}
      spec: {containers: [{name: web, image: 'example.com/web:1.0.0', resources: null}]}
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: shop}
  webhooks:
  - name: shop.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    failurePolicy: Ignore
    clientConfig: {caBundle: Cg==, service: {namespace: shop, name: web}}
    rules: [{apiGroups: [shop.example.com], apiVersions: [v1], operations: [CREATE], resources: [shops]}]
";

/// Returns the fields that the reconciler owns.
async fn owned(cluster: &e2e::Cluster, what: &str) -> String {
    let object = get(cluster, &format!("{what} --show-managed-fields"))
        .await
        .unwrap();
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let ours = entries
        .iter()
        .find(|entry| entry["manager"] == "bundle-webhook")
        .unwrap();
    ours["fieldsV1"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn null_fields_and_placeholders_in_the_content_are_not_owned() {
    let (cluster, _webhook) = stage().await;
    let reference = publish(&cluster, "team/generated:1", |folder| {
        bundle_of(folder, "generated", GENERATED)
    })
    .await;
    apply(&cluster, &deployment("web", &reference, &json!({}))).await;
    installed(&cluster, "web").await;
    let fields = owned(&cluster, "deployment web -n shop").await;
    assert!(fields.contains("f:selector"), "{fields}");
    assert!(!fields.contains("f:replicas"), "{fields}");
    let fields = owned(&cluster, "validatingwebhookconfiguration shop").await;
    assert!(fields.contains("f:failurePolicy"), "{fields}");
    assert!(!fields.contains("f:caBundle"), "{fields}");
    // The restore of the label does not change the number of replicas. Otherwise the restore would
    // conflict with an autoscaler.
    kubectl(&cluster, "scale deployment web -n shop --replicas=3").await;
    let label = "core.rukpak.io/owner-name";
    kubectl(&cluster, &format!("label deployment web -n shop {label}-")).await;
    let restored = wait::until(LONG, "the label is restored", || async {
        let found = get(&cluster, "deployment web -n shop").await;
        Ok(found.filter(|found| found["metadata"]["labels"][label] == "web"))
    })
    .await
    .unwrap();
    assert_eq!(restored["spec"]["replicas"], Value::from(3));
}
