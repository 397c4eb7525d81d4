//! Removal of objects with finalizers of other controllers, and of Bundles of earlier templates
//! with changed labels. `requester::removal` tests permissions.

use bundle_core::review::template_hash;
use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    CONFIG, LONG, apply, bundle_of, condition, deployment, get, installed, kubectl, publish, stage,
    until,
};

const OBJECTS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: held}
---
apiVersion: v1
kind: Namespace
metadata: {name: free}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: held}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: held}
data: {text: hello}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: free}
spec: {ports: [{port: 80}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: held-web}
rules: []
";

async fn patch(cluster: &Cluster, what: &str, patch: &Value) {
    let patch = patch.to_string();
    let arguments = ["patch", "--type=merge", "--patch", &patch];
    let patched = cluster.kubectl(what.split(' ').fold(arguments.to_vec(), |mut all, part| {
        all.push(part);
        all
    }));
    patched.await.unwrap().success().unwrap();
}

async fn until_gone(cluster: &Cluster, what: &str) {
    wait::until_true(LONG, &format!("{what} is gone"), || async {
        if get(cluster, what).await.is_none() {
            return Ok(true);
        }
        let object = get(cluster, "bundledeployment web").await;
        anyhow::bail!("{}", condition(&object.unwrap_or_default(), "Ready"))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_finalizer_is_named_and_delays_only_what_contains_its_object() {
    let (cluster, _webhook) = stage().await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", OBJECTS)).await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;
    // Both objects are in phases long before the last phase.
    let finalizers = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    patch(&cluster, "configmap web -n held", &finalizers).await;
    patch(&cluster, "clusterrole held-web", &finalizers).await;
    kubectl(&cluster, "delete bundledeployment web --wait=false").await;
    for what in [
        "service web -n free",
        "serviceaccount web -n held",
        "namespace free",
    ] {
        until_gone(&cluster, what).await;
    }
    wait::until_true(LONG, "objects and finalizers are named", || async {
        let object = get(&cluster, "bundledeployment web")
            .await
            .unwrap_or_default();
        let found = condition(&object, "Ready");
        let reported = found["message"].as_str().unwrap_or_default();
        let parts = [
            "ConfigMap/held/web",
            "ClusterRole.rbac.authorization.k8s.io/held-web",
            "example.com/hold",
        ];
        if parts.iter().all(|part| reported.contains(part)) {
            return Ok(true);
        }
        anyhow::bail!("{found}")
    })
    .await
    .unwrap();
    let namespace = get(&cluster, "namespace held").await.unwrap();
    assert_eq!(namespace["metadata"]["deletionTimestamp"], Value::Null);
    let none = json!({"metadata": {"finalizers": null}});
    patch(&cluster, "configmap web -n held", &none).await;
    patch(&cluster, "clusterrole held-web", &none).await;
    until_gone(&cluster, "bundledeployment web").await;
    until_gone(&cluster, "namespace held").await;
}

const QUEUES: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.shop.example.com}
spec:
  group: shop.example.com
  scope: Cluster
  names: {kind: Queue, plural: queues}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: controller, namespace: team-a}
---
apiVersion: shop.example.com/v1
kind: Queue
metadata: {name: orders}
---
";

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_prunes_controller_and_definition_only_after_their_resources() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let all = format!("{QUEUES}{CONFIG}");
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", &all)).await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    installed(&cluster, "web").await;
    let finalizers = json!({"metadata": {"finalizers": ["shop.example.com/drain"]}});
    patch(&cluster, "queue orders", &finalizers).await;
    let two = publish(&cluster, "team/web:2", |f| bundle_of(f, "web", CONFIG)).await;
    apply(&cluster, &deployment("web", &two, &json!({}))).await;
    let reported = until(&cluster, "bundledeployment web", "Installed", "False").await;
    assert!(
        reported.contains("waiting for the deletion of Queue.shop.example.com/orders"),
        "{reported}"
    );
    for what in [
        "serviceaccount controller -n team-a",
        "crd queues.shop.example.com",
    ] {
        let found = get(&cluster, what).await.unwrap();
        assert_eq!(found["metadata"]["deletionTimestamp"], Value::Null);
    }
    let none = json!({"metadata": {"finalizers": null}});
    patch(&cluster, "queue orders", &none).await;
    for what in [
        "serviceaccount controller -n team-a",
        "crd queues.shop.example.com",
    ] {
        until_gone(&cluster, what).await;
    }
    installed(&cluster, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_an_earlier_template_without_labels_is_deleted_like_the_others() {
    let (cluster, _webhook) = stage().await;
    let registry = cluster.registry(0).unwrap();
    let mut first = None;
    for n in 0..7 {
        let reference = registry.reference(&format!("team/never:{n}"));
        let object = deployment("web", &reference, &json!({}));
        apply(&cluster, &object).await;
        let bundle = format!("web-{}", template_hash(&object["spec"]["template"]));
        wait::until_true(LONG, "the Bundle of the template is sealed", || async {
            let found = get(&cluster, &format!("bundle {bundle}")).await;
            let seal = found.map(|found| found["status"]["admission"]["seal"].is_string());
            Ok(seal == Some(true))
        })
        .await
        .unwrap();
        if first.is_none() {
            let labels = json!({"metadata": {"labels": null}});
            patch(&cluster, &format!("bundle {bundle}"), &labels).await;
            first = Some(bundle);
        }
    }
    // Four of the Bundles that were never installed are kept. The oldest Bundle is deleted.
    let first = first.unwrap();
    until_gone(&cluster, &format!("bundle {first}")).await;
}
