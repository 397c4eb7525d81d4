//! Fields that controllers and the API server set on installed objects. These fields are not drift.

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::until_condition;
use crate::scenarios::reconcile::lifecycle::{until_no_writes, writes};
use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, staged, until,
};

/// Two aggregated ClusterRoles, a registration without `caBundle`, and a Deployment with quantities
/// that the API server rewrites.
const CONTENT: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: web-part, labels: {example.com/web: 'true'}}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: web-all}
aggregationRule:
  clusterRoleSelectors:
  - matchLabels: {example.com/web: 'true'}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: web-empty}
aggregationRule:
  clusterRoleSelectors:
  - matchLabels: {example.com/web: 'true'}
rules: []
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: web}
webhooks:
- name: web.example.com
  clientConfig: {service: {name: web, namespace: team-a}}
  rules:
  - {apiGroups: [web.example.com], apiVersions: [v1], operations: [CREATE], resources: [pages]}
  admissionReviewVersions: [v1]
  sideEffects: None
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example.com/web:1
        ports: [{containerPort: 8080}]
        resources:
          requests: {cpu: 0.5, memory: 0.5Gi}
          limits: {cpu: 1000m, memory: 1024Mi}
        readinessProbe: {httpGet: {path: /, port: 8080}}
      volumes:
      - {name: settings, configMap: {name: web}}
";

/// Objects of [`CONTENT`] that other programs change.
const OBJECTS: [&str; 5] = [
    "clusterrole web-all",
    "clusterrole web-empty",
    "clusterrole web-part",
    "validatingwebhookconfiguration web",
    "deployment web -n team-a",
];

/// Returns the value of the injected `caBundle`: a certificate authority in PEM format, in base64.
fn authority(cluster: &Cluster) -> String {
    use base64::Engine as _;
    let certificate = fs_err::read(cluster.authority_file()).unwrap();
    base64::engine::general_purpose::STANDARD.encode(certificate)
}

/// Asserts that rules and authority have the values that the other programs set.
async fn check_injected_values(cluster: &Cluster, authority: &str) {
    let part = get(cluster, "clusterrole web-part").await.unwrap();
    for aggregated in ["web-all", "web-empty"] {
        let found = get(cluster, &format!("clusterrole {aggregated}")).await;
        assert_eq!(found.unwrap()["rules"], part["rules"], "{aggregated}");
    }
    let found = get(cluster, "validatingwebhookconfiguration web").await;
    let found = found.unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert_eq!(found, authority);
}

/// Asserts that no object has drifted, and that no object was restored.
async fn check_no_drift(cluster: &Cluster) {
    let drifted = until_condition(cluster, "bundledeployment web", "Drifted", "False").await;
    assert_eq!(drifted["reason"], "InPlace", "{drifted}");
    let events = get(cluster, "events.v1.events.k8s.io -n default").await;
    let events = events.unwrap_or_default()["items"].clone();
    let restored: Vec<&Value> = events
        .as_array()
        .into_iter()
        .flatten()
        .filter(|event| event["reason"] == "DriftCorrected")
        .map(|event| &event["note"])
        .collect();
    assert!(restored.is_empty(), "{restored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_controllers_and_the_api_server_set_are_not_drift() {
    let (cluster, mut webhook) = staged(Cluster::builder().audit(true)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONTENT)).await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;

    // Sets the `caBundle`, like cert-manager's injector.
    let authority = authority(&cluster);
    let patch =
        json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": authority}]);
    let inject = "patch validatingwebhookconfiguration web --type json --field-manager injector -p";
    kubectl(&cluster, &format!("{inject} {patch}")).await;
    until_no_writes(&cluster).await;
    check_injected_values(&cluster, &authority).await;
    check_no_drift(&cluster).await;

    // Each change of an object causes the webhook to verify the object again.
    for what in OBJECTS {
        kubectl(&cluster, &format!("annotate {what} example.com/seen=yes")).await;
    }
    until_no_writes(&cluster).await;
    check_injected_values(&cluster, &authority).await;
    check_no_drift(&cluster).await;

    // Changes during the downtime are verified after the restart.
    webhook.kill().unwrap();
    for what in OBJECTS {
        kubectl(&cluster, &format!("annotate {what} example.com/seen-")).await;
    }
    webhook.start().await.unwrap();
    until(&cluster, "bundledeployment web", "Drifted", "False").await;
    until_no_writes(&cluster).await;
    check_injected_values(&cluster, &authority).await;
    check_no_drift(&cluster).await;

    // Without changes, a restart writes no object.
    let before = writes(&cluster).unwrap();
    webhook.restart().await.unwrap();
    wait::until_true(LONG, "nothing is applied", || async {
        let unchanged = "all objects are unchanged: nothing is applied";
        Ok(webhook.log()?.contains(unchanged))
    })
    .await
    .unwrap();
    until_no_writes(&cluster).await;
    assert_eq!(writes(&cluster).unwrap(), before, "writes after a restart");
    check_injected_values(&cluster, &authority).await;
    check_no_drift(&cluster).await;
}
