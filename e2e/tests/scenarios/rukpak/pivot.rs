//! The template of a BundleDeployment and its generated Bundles. Covers E35 to E39, E41 and E46 to
//! E48 of `docs/reference/rukpak-scenarios.md`.

use std::time::Duration;

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use super::{PLAIN, deployment, image, object, push, stage};
use crate::scenarios::objects::{apply, condition, get, kubectl, until, until_reason};

const LONG: Duration = Duration::from_secs(90);
const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pivots.combo.io}
spec:
  group: combo.io
  names: {kind: Pivot, plural: pivots}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

/// Returns the names of the generated Bundles.
async fn bundles(cluster: &Cluster) -> Vec<String> {
    let line =
        "get bundles -l core.rukpak.io/owner-name=combo -o jsonpath={.items[*].metadata.name}";
    let names = kubectl(cluster, line).await;
    names.split_whitespace().map(str::to_owned).collect()
}

async fn until_bundles(cluster: &Cluster, expected: usize) {
    wait::until_true(LONG, &format!("{expected} Bundles"), || async {
        Ok(bundles(cluster).await.len() == expected)
    })
    .await
    .unwrap();
}

async fn active(cluster: &Cluster) -> String {
    let found = get(cluster, "bundledeployment combo").await.unwrap();
    found["status"]["activeBundle"].as_str().unwrap().to_owned()
}

fn combo(reference: &str) -> Value {
    let mut combo = deployment("combo", PLAIN, &image(reference));
    // RukPak deletes former Bundles. With `history: 0`, the pod deletes former Bundles too.
    combo["spec"]["rollout"] = json!({"history": 0});
    combo
}

#[tokio::test(flavor = "multi_thread")]
async fn active_bundle_stays_until_another_one_is_unpacked_and_installed() {
    let (cluster, webhook) = stage(Cluster::builder().registries(1)).await;
    let mut references = Vec::new();
    for version in ["one", "two"] {
        let text = object("combo", version);
        let files = [("manifests/all.yaml", &*text), ("manifests/crd.yaml", CRD)];
        references.push(push(&cluster, &format!("combo:{version}"), &files).await);
    }
    let invalid = push(&cluster, "combo:invalid", &[("other/all.yaml", "")]).await;

    apply(&cluster, &combo(&references[0])).await;
    until(&cluster, "bundledeployment combo", "Installed", "True").await;
    let first = active(&cluster).await;
    let owner = get(&cluster, "bundledeployment combo").await.unwrap();
    let generated = get(&cluster, &format!("bundle {first}")).await.unwrap();
    let metadata = &generated["metadata"];
    let reference = &metadata["ownerReferences"][0];
    assert_eq!(reference["uid"], owner["metadata"]["uid"]);
    assert_eq!(reference["controller"], true);
    let labels = &metadata["labels"];
    assert_eq!(labels["core.rukpak.io/owner-kind"], "BundleDeployment");
    assert_eq!(labels["core.rukpak.io/owner-name"], "combo");
    let hash = labels["core.rukpak.io/bundle-template-hash"].as_str();
    assert_eq!(first, format!("combo-{}", hash.unwrap()));

    // After an unsuccessful update, the second Bundle fails, and the first Bundle still exists.
    apply(&cluster, &combo(&invalid)).await;
    let message = until_reason(
        &cluster,
        "bundledeployment combo",
        "HasValidBundle",
        "UnpackFailed",
    )
    .await;
    assert!(
        message.starts_with("Failed to unpack the combo-"),
        "{message}"
    );
    assert!(
        message.contains("readdir manifests: file does not exist"),
        "{message}"
    );
    until_bundles(&cluster, 2).await;
    assert_eq!(active(&cluster).await, first);
    let found = get(&cluster, "bundledeployment combo").await.unwrap();
    assert_eq!(condition(&found, "HasValidBundle")["status"], "False");

    // After a successful update, the other Bundles are deleted.
    apply(&cluster, &combo(&references[1])).await;
    wait::until_true(LONG, "the ConfigMap of the second version", || async {
        let found = get(&cluster, "configmap combo -n default").await;
        Ok(found.unwrap_or_default()["data"]["text"] == "two")
    })
    .await
    .unwrap();
    until(&cluster, "bundledeployment combo", "Installed", "True").await;
    until_bundles(&cluster, 1).await;
    let second = active(&cluster).await;
    assert_ne!(second, first);
    assert_eq!(bundles(&cluster).await, std::slice::from_ref(&second));

    // A deleted Bundle is generated again.
    let what = format!("bundle {second}");
    let before = get(&cluster, &what).await.unwrap()["metadata"]["uid"].take();
    kubectl(&cluster, &format!("delete {what}")).await;
    wait::until_true(LONG, "the Bundle is generated again", || async {
        let found = get(&cluster, &what).await.unwrap_or_default();
        Ok(found["metadata"]["uid"].is_string() && found["metadata"]["uid"] != before)
    })
    .await
    .unwrap();
    until(&cluster, &what, "Unpacked", "True").await;

    kubectl(&cluster, "delete bundledeployment combo --timeout 80s").await;
    assert_eq!(get(&cluster, "crd pivots.combo.io").await, None);
    until_bundles(&cluster, 0).await;
    drop(webhook);
}
