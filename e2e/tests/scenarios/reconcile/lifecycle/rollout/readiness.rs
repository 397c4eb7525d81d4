//! Phases that wait until the previous phase is healthy, and probes of a package. No controllers
//! run, so the scenarios write the status of objects.

use e2e::{Cluster, Webhook, wait};
use serde_json::{Value, json};

use super::{
    LONG, NAME, apply, bundle_of, deployment, get, kubectl, make_available, objects, publish,
    stage, until, until_rolled_back,
};
use crate::scenarios::objects::{condition, until_reason};

const SECRET: &str = "---
apiVersion: v1
kind: Secret
metadata: {name: web, namespace: team-a}
stringData: {key: former}
";
const WIDGETS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.probes.example.com}
spec:
  group: probes.example.com
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: probes.example.com/v1
kind: Widget
metadata: {name: web, namespace: team-a}
spec: {size: 1}
";
const PROBES: &str = "probes:
- selector: {group: probes.example.com, kind: Widget}
  assertions:
  - fieldValue: {fieldPath: /status/phase, value: Running}
  - fieldsEqual: {fieldA: /spec/size, fieldB: /status/size}
";

/// Returns an Ingress, which is applied after Deployments and custom resources.
fn ingress(host: &str) -> String {
    format!(
        "---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: web, namespace: team-a}}
spec: {{rules: [{{host: '{host}.example.com'}}], defaultBackend: {{service: {{name: web, port: {{number: 80}}}}}}}}
"
    )
}

/// Publishes content with a ConfigMap, a Deployment and an Ingress. `number` is the tag of the
/// image in the Deployment.
async fn version(cluster: &Cluster, number: u8, more: &str) -> String {
    let manifests = format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: web, namespace: team-a}}
data: {{image: '{number}'}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: team-a}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers: [{{name: web, image: 'example.com/web:{number}'}}]
{}{more}",
        ingress(&format!("v{number}"))
    );
    let reference = format!("team/web:{number}");
    publish(cluster, &reference, |folder| {
        bundle_of(folder, "web", &manifests)?;
        let file = folder.join("bundle.yaml");
        let package = fs_err::read_to_string(&file)?;
        let version = format!("{number}.0.0");
        Ok(fs_err::write(&file, package.replace("1.0.0", &version))?)
    })
    .await
}

fn web(reference: &str, rollout: &Value) -> Value {
    deployment("web", reference, &json!({"rollout": rollout}))
}

async fn host(cluster: &Cluster) -> Value {
    let found = get(cluster, "ingress web -n team-a").await;
    found.map_or(Value::Null, |found| {
        found["spec"]["rules"][0]["host"].clone()
    })
}

/// Waits until the installation waits for the Deployment.
async fn waits_for_deployment(cluster: &Cluster) {
    let message = until_reason(cluster, NAME, "Progressing", "WaitingForHealth").await;
    let expected = "phase 2 of 3: 0/1 workloads ready: Deployment.apps/team-a/web: ";
    assert!(message.starts_with(expected), "{message}");
}

async fn restores_config_map(cluster: &Cluster) {
    kubectl(cluster, "delete configmap web -n team-a").await;
    wait::until_true(LONG, "the ConfigMap is restored", || async {
        Ok(get(cluster, "configmap web -n team-a").await.is_some())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn next_phase_is_applied_after_the_former_phase_is_healthy() {
    let (cluster, mut webhook) = stage().await;
    let one = version(&cluster, 1, SECRET).await;
    let two = version(&cluster, 2, "").await;
    let three = version(&cluster, 3, "").await;
    let ready = json!({"waitFor": "Ready"});
    apply(&cluster, &web(&one, &ready)).await;
    waits_for_deployment(&cluster).await;
    let object = get(&cluster, NAME).await.unwrap();
    for kind in ["Installed", "Ready"] {
        let found = condition(&object, kind);
        assert_eq!(
            (&found["status"], &found["reason"]),
            (&json!("False"), &json!("WaitingForHealth")),
            "{object}"
        );
    }
    assert_eq!(object["status"]["installed"], Value::Null, "{object}");
    assert_eq!(host(&cluster).await, Value::Null);

    // Applied objects are maintained, and a restart continues the installation.
    restores_config_map(&cluster).await;
    webhook.kill().unwrap();
    webhook.restart().await.unwrap();
    restores_config_map(&cluster).await;
    waits_for_deployment(&cluster).await;
    assert_eq!(host(&cluster).await, Value::Null);
    make_available(&cluster, "1").await;
    until(&cluster, NAME, "Ready", "True").await;
    assert_eq!(host(&cluster).await, "v1.example.com");

    // Objects are pruned after all phases, and new content replaces content that waits.
    apply(&cluster, &web(&two, &ready)).await;
    waits_for_deployment(&cluster).await;
    let object = get(&cluster, NAME).await.unwrap();
    let upgrade = &object["status"]["upgrade"];
    assert_eq!(
        (
            &upgrade["version"],
            &upgrade["applied"],
            &upgrade["objects"]
        ),
        (&json!("2.0.0"), &json!(2), &json!(3)),
        "{object}"
    );
    assert_eq!(host(&cluster).await, "v1.example.com");
    apply(&cluster, &web(&three, &ready)).await;
    make_available(&cluster, "3").await;
    until(&cluster, NAME, "Ready", "True").await;
    assert_eq!(host(&cluster).await, "v3.example.com");
    assert!(get(&cluster, "secret web -n team-a").await.is_none());
    let object = get(&cluster, NAME).await.unwrap();
    assert_eq!(object["status"]["installed"]["version"], "3.0.0");
    assert_eq!(object["status"]["upgrade"], Value::Null, "{object}");
}

async fn set_status(cluster: &Cluster, status: &Value) {
    let patch = json!({"status": status}).to_string();
    let line = format!(
        "patch widgets.probes.example.com web -n team-a --subresource=status --type=merge -p {patch}"
    );
    kubectl(cluster, &line).await;
}

/// Waits until `Healthy` is `False` with this reason in its message.
async fn is_unhealthy(cluster: &Cluster, why: &str) {
    let expected = format!("Widget.probes.example.com/team-a/web: {why}");
    wait::until(LONG, &expected, || async {
        let object = get(cluster, NAME).await.unwrap_or_default();
        let found = condition(&object, "Healthy");
        if found["status"] == "False" && found["message"] == *expected {
            return Ok(Some(()));
        }
        anyhow::bail!("{found}")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_decides_the_health_of_a_custom_resource() {
    let (cluster, mut webhook): (Cluster, Webhook) = stage().await;
    let manifests = format!("{WIDGETS}{}", ingress("probe"));
    let reference = publish(&cluster, "team/web:probe", |folder| {
        bundle_of(folder, "web", &manifests)?;
        let file = folder.join("bundle.yaml");
        let package = fs_err::read_to_string(&file)?;
        Ok(fs_err::write(&file, package + PROBES)?)
    })
    .await;
    apply(&cluster, &web(&reference, &json!({"waitFor": "Ready"}))).await;
    is_unhealthy(&cluster, "probe: field /status/phase does not exist").await;
    assert_eq!(host(&cluster).await, Value::Null);
    set_status(&cluster, &json!({"phase": "Pending", "size": 1})).await;
    let pending = "probe: field /status/phase is \"Pending\", expected \"Running\"";
    is_unhealthy(&cluster, pending).await;
    set_status(&cluster, &json!({"phase": "Running", "size": 2})).await;
    let differ = "probe: fields /spec/size and /status/size differ";
    is_unhealthy(&cluster, differ).await;
    assert_eq!(host(&cluster).await, Value::Null);
    set_status(&cluster, &json!({"size": 1})).await;
    until(&cluster, NAME, "Healthy", "True").await;
    until(&cluster, NAME, "Ready", "True").await;
    assert_eq!(host(&cluster).await, "probe.example.com");

    // Probes determine the health after the installation and also after a restart.
    set_status(&cluster, &json!({"size": 2})).await;
    is_unhealthy(&cluster, differ).await;
    webhook.restart().await.unwrap();
    is_unhealthy(&cluster, differ).await;
    set_status(&cluster, &json!({"size": 1, "observedGeneration": 0})).await;
    is_unhealthy(&cluster, "its controller has seen generation 0 of 1").await;
    set_status(&cluster, &json!({"observedGeneration": 1})).await;
    until(&cluster, NAME, "Healthy", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_passes_while_an_installation_waits_between_phases() {
    let (cluster, mut webhook) = stage().await;
    let one = version(&cluster, 1, SECRET).await;
    let two = version(&cluster, 2, "").await;
    apply(&cluster, &web(&one, &json!({"waitFor": "Ready"}))).await;
    make_available(&cluster, "1").await;
    until(&cluster, NAME, "Ready", "True").await;
    let before = objects(&cluster).await;

    let back = json!({"waitFor": "Ready", "deadline": "20s", "onFailure": "RollBack"});
    apply(&cluster, &web(&two, &back)).await;
    waits_for_deployment(&cluster).await;
    webhook.kill().unwrap();
    webhook.restart().await.unwrap();
    let object = until_rolled_back(&cluster).await;
    let message = condition(&object, "Ready")["message"].to_string();
    let cause = "was not healthy within spec.rollout.deadline 20s: phase 2 of 3: 0/1 workloads ready: Deployment.apps/team-a/web: ";
    assert!(message.contains(cause), "{message}");
    assert_eq!(objects(&cluster).await, before);
    assert_eq!(host(&cluster).await, "v1.example.com");
    assert_eq!(object["status"]["installed"]["version"], "1.0.0");

    // With `Hold`, the installation continues to wait, and is completed when the Deployment is
    // healthy.
    let hold = json!({"waitFor": "Ready", "deadline": "2s"});
    apply(&cluster, &web(&two, &hold)).await;
    let message = until_reason(&cluster, NAME, "Ready", "ProgressDeadlineExceeded").await;
    assert!(message.contains("phase 2 of 3: 0/1 workloads"), "{message}");
    assert!(message.ends_with("[BUNDLE-INSTALL-120]"), "{message}");
    assert_eq!(host(&cluster).await, "v1.example.com");
    make_available(&cluster, "2").await;
    until(&cluster, NAME, "Ready", "True").await;
    assert_eq!(host(&cluster).await, "v2.example.com");
}
