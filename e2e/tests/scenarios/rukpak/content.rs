//! Content that cannot be unpacked or installed. Covers E14, E18 to E21, E33, E39, E40 and E44 of
//! `docs/reference/rukpak-scenarios.md`.

use e2e::Cluster;
use e2e::registry::{PASSWORD, USER};
use serde_json::{Value, json};

use super::{NAMESPACE, PLAIN, bundle, deployment, image, log_in, object, push, stage};
use crate::scenarios::objects::{apply, condition, get, kubectl, until};

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: combinations.combo.io}
spec:
  group: combo.io
  names: {kind: Combination, plural: combinations}
  scope: Cluster
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
const CUSTOM_RESOURCE: &str =
    "apiVersion: combo.io/v1alpha1\nkind: Combination\nmetadata: {name: sample}\n";

#[tokio::test(flavor = "multi_thread")]
async fn images_without_valid_manifests_fail_with_the_texts_of_rukpak() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(1)).await;
    let config_map = object("web", "hello");
    for (name, files, text) in [
        (
            "no-manifests",
            vec![("unmanifests/all.yaml", &*config_map)],
            "get objects from bundle manifests: readdir manifests: file does not exist",
        ),
        (
            "empty-manifests",
            vec![("manifests/.gitkeep", "")],
            "invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object",
        ),
        (
            "subdir",
            vec![
                ("manifests/all.yaml", &*config_map),
                ("manifests/emptydir/empty.yaml", ""),
            ],
            "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"manifests/emptydir\"",
        ),
    ] {
        let reference = push(&cluster, &format!("{name}:v1"), &files).await;
        apply(&cluster, &bundle(name, &image(&reference))).await;
        let what = format!("bundle {name}");
        let message = until(&cluster, &what, "Unpacked", "False").await;
        assert!(message.contains(text), "{name}: {message}");
        let found = get(&cluster, &what).await.unwrap();
        assert_eq!(found["status"]["phase"], "Failing");
        assert_eq!(condition(&found, "Unpacked")["reason"], "UnpackFailed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn image_is_unpacked_to_its_digest_and_a_missing_tag_is_reported() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(1)).await;
    let missing = cluster
        .registry(0)
        .unwrap()
        .reference("combo:non-existent-tag");
    apply(&cluster, &bundle("missing", &image(&missing))).await;
    let message = until(&cluster, "bundle missing", "Unpacked", "False").await;
    // No Pod pulls the image, so the message does not come from the kubelet.
    assert!(
        message.contains("combo:non-existent-tag: not found in the registry"),
        "{message}"
    );
    let found = get(&cluster, "bundle missing").await.unwrap();
    assert_eq!(found["status"]["phase"], "Failing");
    assert_eq!(found["status"]["resolvedSource"], Value::Null);

    let files = [("manifests/all.yaml", &*object("web", "hello"))];
    let reference = push(&cluster, "combo:v1", &files).await;
    apply(&cluster, &bundle("present", &image(&reference))).await;
    until(&cluster, "bundle present", "Unpacked", "True").await;
    let found = get(&cluster, "bundle present").await.unwrap();
    let resolved = &found["status"]["resolvedSource"]["image"]["ref"];
    let resolved = resolved.as_str().unwrap();
    assert!(resolved.contains("@sha256:"), "{resolved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn private_image_is_unpacked_with_the_pull_secret() {
    let builder = Cluster::builder().registries(1).registry_password(true);
    let (cluster, _webhook) = stage(builder).await;
    log_in(&cluster).await;
    let registry = cluster.registry(0).unwrap();
    let files = [("manifests/all.yaml", &*object("web", "hello"))];
    let reference = push(&cluster, "private:v1", &files).await;
    let mut source = image(&reference);
    source["image"]["pullSecret"] = json!("mysecret");
    apply(&cluster, &bundle("private", &source)).await;
    until(&cluster, "bundle private", "Unpacked", "False").await;
    let line = format!(
        "create secret docker-registry mysecret --docker-server={} --docker-username={USER} --docker-password={PASSWORD} --docker-email=ana@example.com -n {NAMESPACE}",
        registry.host()
    );
    kubectl(&cluster, &line).await;
    until(&cluster, "bundle private", "Unpacked", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_kinds_fail_and_definitions_are_installed_with_their_resources() {
    let (cluster, _webhook) = stage(Cluster::builder().registries(1)).await;
    let catalog = "apiVersion: operators.coreos.com/v1alpha1\nkind: CatalogSource\nmetadata: {name: olm, namespace: default}\n";
    let reference = push(&cluster, "olm:v1", &[("manifests/all.yaml", catalog)]).await;
    apply(&cluster, &deployment("olm", PLAIN, &image(&reference))).await;
    let what = "bundledeployment olm";
    let message = until(&cluster, what, "Installed", "False").await;
    assert!(
        message.contains(
            "no matches for kind \"CatalogSource\" in version \"operators.coreos.com/v1alpha1\""
        ),
        "{message}"
    );
    let found = get(&cluster, what).await.unwrap();
    assert_eq!(condition(&found, "Installed")["reason"], "InstallFailed");
    assert_eq!(condition(&found, "HasValidBundle")["status"], "True");

    // RukPak cannot install a CRD and its custom resource in the same content.
    let files = [
        ("manifests/crd.yaml", CRD),
        ("manifests/cr.yaml", CUSTOM_RESOURCE),
    ];
    let reference = push(&cluster, "combo:v1", &files).await;
    apply(&cluster, &deployment("combo", PLAIN, &image(&reference))).await;
    until(&cluster, "bundledeployment combo", "Installed", "True").await;
    assert!(get(&cluster, "combinations sample").await.is_some());
}
