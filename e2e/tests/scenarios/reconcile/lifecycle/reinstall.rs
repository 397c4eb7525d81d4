//! CRDs that are deleted and created again: by a removal and a new installation, or by another user
//! with another scope or version. `removal` tests the removal itself.

use std::time::{Duration, Instant};

use e2e::wait;
use serde_json::json;

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, stage, until,
};

/// Time limit, shorter than the ten minutes for which the reconciler caches discovery data.
const SOON: Duration = Duration::from_secs(45);

/// Returns the CRD of a kind `Kettle` with one version.
fn definition(scope: &str, version: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: kettles.reinstall.example.com}}
spec:
  group: reinstall.example.com
  scope: {scope}
  names: {{kind: Kettle, listKind: KettleList, plural: kettles, singular: kettle}}
  versions:
  - name: {version}
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

fn kettle(version: &str) -> String {
    format!(
        "apiVersion: reinstall.example.com/{version}
kind: Kettle
metadata: {{name: kettle, namespace: reinstall}}
spec: {{litres: 2}}
"
    )
}

async fn create(cluster: &e2e::Cluster, manifest: &str) {
    let tool = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let output = tool
        .args(["create", "-f", "-"])
        .stdin(manifest.to_owned())
        .output()
        .await
        .unwrap();
    output.success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_and_its_object_are_installed_again_at_once_after_a_deletion() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace reinstall").await;
    let content = format!("{}---\n{}", definition("Namespaced", "v1"), kettle("v1"));
    let reference = publish(&cluster, "team/reinstall:1", |f| {
        bundle_of(f, "reinstall", &content)
    })
    .await;
    let object = deployment("reinstall", &reference, &json!({}));
    for _ in 0..3 {
        let began = Instant::now();
        apply(&cluster, &object).await;
        installed(&cluster, "reinstall").await;
        assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
        kubectl(&cluster, "delete bundledeployment reinstall --timeout 80s").await;
        let definition = "crd kettles.reinstall.example.com";
        assert_eq!(get(&cluster, definition).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_pruned_by_an_upgrade_is_installed_again_by_a_downgrade() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace reinstall").await;
    let note = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: note, namespace: reinstall}\n";
    let all = format!(
        "{}---\n{}---\n{note}",
        definition("Namespaced", "v1"),
        kettle("v1")
    );
    let one = publish(&cluster, "team/pruned:1", |f| bundle_of(f, "pruned", &all)).await;
    let two = publish(&cluster, "team/pruned:2", |f| bundle_of(f, "pruned", note)).await;
    for _ in 0..2 {
        let began = Instant::now();
        apply(&cluster, &deployment("pruned", &one, &json!({}))).await;
        installed(&cluster, "pruned").await;
        until(&cluster, "bundledeployment pruned", "Ready", "True").await;
        assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
        assert!(has_kettle(&cluster, "v1/namespaces/reinstall/kettles/kettle").await);
        apply(&cluster, &deployment("pruned", &two, &json!({}))).await;
        installed(&cluster, "pruned").await;
        wait::until_true(LONG, "the definition is pruned", || async {
            let definition = "crd kettles.reinstall.example.com";
            Ok(get(&cluster, definition).await.is_none())
        })
        .await
        .unwrap();
        until(&cluster, "bundledeployment pruned", "Ready", "True").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_watched_again_after_its_definition_was_deleted_while_the_webhook_was_down() {
    let (cluster, mut webhook) = stage().await;
    kubectl(&cluster, "create namespace reinstall").await;
    let content = format!("{}---\n{}", definition("Namespaced", "v1"), kettle("v1"));
    let reference = publish(&cluster, "team/unwatched:1", |f| {
        bundle_of(f, "unwatched", &content)
    })
    .await;
    apply(&cluster, &deployment("unwatched", &reference, &json!({}))).await;
    installed(&cluster, "unwatched").await;
    // The content is still installed while the new content cannot be fetched.
    let missing = cluster
        .registry(0)
        .unwrap()
        .reference("team/unwatched:missing");
    apply(&cluster, &deployment("unwatched", &missing, &json!({}))).await;
    until(
        &cluster,
        "bundledeployment unwatched",
        "HasValidBundle",
        "False",
    )
    .await;
    webhook.kill().unwrap();
    kubectl(&cluster, "delete crd kettles.reinstall.example.com").await;
    webhook.start().await.unwrap();
    let is_there = || has_kettle(&cluster, "v1/namespaces/reinstall/kettles/kettle");
    wait::until_true(LONG, "definition and object are restored", || async {
        Ok(is_there().await)
    })
    .await
    .unwrap();
    let uid = || async {
        let found = get(&cluster, "kettle kettle -n reinstall").await;
        found.map(|found| found["metadata"]["uid"].clone())
    };
    let before = uid().await;
    kubectl(&cluster, "delete kettle kettle -n reinstall").await;
    wait::until_true(LONG, "the object is restored again", || async {
        let now = uid().await;
        Ok(now.is_some() && now != before)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_restored_after_its_definition_was_recreated_with_another_scope_or_version() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace reinstall").await;
    create(&cluster, &definition("Namespaced", "v1")).await;
    let one = publish(&cluster, "team/kettle:1", |f| {
        bundle_of(f, "kettle", &kettle("v1"))
    })
    .await;
    let two = publish(&cluster, "team/kettle:2", |f| {
        bundle_of(f, "kettle", &kettle("v2"))
    })
    .await;
    apply(&cluster, &deployment("kettle", &one, &json!({}))).await;
    until(&cluster, "bundledeployment kettle", "Ready", "True").await;

    let remove = "delete crd kettles.reinstall.example.com";
    kubectl(&cluster, remove).await;
    create(&cluster, &definition("Cluster", "v1")).await;
    wait::until_true(LONG, "the object is there, without a namespace", || async {
        Ok(has_kettle(&cluster, "v1/kettles/kettle").await)
    })
    .await
    .unwrap();
    until(&cluster, "bundledeployment kettle", "Ready", "True").await;

    kubectl(&cluster, remove).await;
    create(&cluster, &definition("Namespaced", "v2")).await;
    let expected = r#"no matches for kind "Kettle" in version "reinstall.example.com/v1""#;
    wait::until_true(LONG, "the condition names the kind", || async {
        let message = until(&cluster, "bundledeployment kettle", "Ready", "False").await;
        if message.contains(expected) {
            return Ok(true);
        }
        anyhow::bail!("{message}")
    })
    .await
    .unwrap();
    let began = Instant::now();
    apply(&cluster, &deployment("kettle", &two, &json!({}))).await;
    until(&cluster, "bundledeployment kettle", "Ready", "True").await;
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
    assert!(has_kettle(&cluster, "v2/namespaces/reinstall/kettles/kettle").await);
}

/// Returns `true` if the object exists. The request uses the path, because kubectl caches kinds.
async fn has_kettle(cluster: &e2e::Cluster, path: &str) -> bool {
    let path = format!("/apis/reinstall.example.com/{path}");
    let found = cluster.get_path(&path).await;
    found.is_ok_and(|object| object.is_some_and(|object| object["spec"]["litres"] == 2))
}
