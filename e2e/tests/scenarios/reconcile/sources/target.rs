//! Target namespace of objects without a namespace.

use serde_json::json;

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, condition, deployment, get, installed, kubectl, publish, stage, until,
};
use e2e::wait;

const UNPLACED: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app}
";

const CONFIG_OF_WEB: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web}
data: {whose: another}
";

#[tokio::test(flavor = "multi_thread")]
async fn objects_without_a_namespace_are_installed_into_the_target_namespace_and_move_with_it() {
    let (cluster, _webhook) = stage().await;
    let reference = publish(&cluster, "team/unplaced:1", |folder| {
        bundle_of(folder, "unplaced", UNPLACED)
    })
    .await;
    apply(&cluster, &deployment("web", &reference, &json!({}))).await;
    let message = until(&cluster, "bundledeployment web", "Installed", "False").await;
    assert!(
        message.contains("the content has 2 objects without a namespace")
            && message.contains("ConfigMap/settings, ServiceAccount/app")
            && message.contains("spec.targetNamespace"),
        "{message}"
    );
    for namespace in ["first", "second"] {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
        let target = json!({ "targetNamespace": namespace });
        apply(&cluster, &deployment("web", &reference, &target)).await;
        installed(&cluster, "web").await;
        let found = get(&cluster, &format!("configmap settings -n {namespace}")).await;
        assert!(found.is_some(), "{namespace}");
    }
    wait::until_true(
        LONG,
        "the objects in the first namespace are gone",
        || async {
            let config = get(&cluster, "configmap settings -n first").await;
            let account = get(&cluster, "serviceaccount app -n first").await;
            Ok(config.is_none() && account.is_none())
        },
    )
    .await
    .unwrap();
    // If the spec no longer names a target namespace, objects without a namespace are rejected
    // again.
    apply(
        &cluster,
        &deployment("web", &reference, &json!({"targetNamespace": null})),
    )
    .await;
    until(&cluster, "bundledeployment web", "Installed", "False").await;
    assert!(
        get(&cluster, "configmap settings -n second")
            .await
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_namespaces_of_the_webhook_as_targets() {
    let (cluster, _webhook) = stage().await;
    let reference = publish(&cluster, "team/unplaced:1", |folder| {
        bundle_of(folder, "unplaced", UNPLACED)
    })
    .await;
    let apply_into = async |namespace: &str| {
        let target = json!({ "targetNamespace": namespace });
        let tool = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
        tool.args(["apply", "-f", "-"])
            .stdin(deployment("web", &reference, &target).to_string())
            .output()
            .await
            .unwrap()
    };
    for namespace in ["bundle-system", "bundle-system-state"] {
        let error = apply_into(namespace).await.failure(1).unwrap();
        assert!(error.contains("BUNDLE-REVIEW-060"), "{error}");
        let named = format!("in namespace {namespace}, which is reserved for bundle-webhook");
        assert!(error.contains(&named), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_a_namespace_of_the_webhook_are_installed_only_if_the_class_names_it() {
    let (cluster, _webhook) = stage().await;
    let reference = publish(&cluster, "team/inside:1", |folder| {
        bundle_of(
            folder,
            "inside",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: inside, namespace: bundle-system}\n",
        )
    })
    .await;
    apply(&cluster, &deployment("inside", &reference, &json!({}))).await;
    let why = until(&cluster, "bundledeployment inside", "Installed", "False").await;
    assert!(
        why.contains("in a namespace of bundle-webhook: ConfigMap/bundle-system/inside"),
        "{why}"
    );
    let what = "configmap inside -n bundle-system";
    assert!(get(&cluster, what).await.is_none());

    // The reconciler must not adopt this namespace, because adopted namespaces are deleted with the
    // BundleDeployment.
    let namespace = publish(&cluster, "team/namespace:1", |folder| {
        bundle_of(
            folder,
            "namespace",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: bundle-system-state}\n",
        )
    })
    .await;
    let adopting = json!({"collision": "Adopt"});
    apply(&cluster, &deployment("namespace", &namespace, &adopting)).await;
    let why = until(&cluster, "bundledeployment namespace", "Installed", "False").await;
    assert!(
        why.contains("in a namespace of bundle-webhook: Namespace/bundle-system-state"),
        "{why}"
    );

    let targets = json!({"spec": {"targets": {"namespaces": ["*", "bundle-system"]}}});
    kubectl(
        &cluster,
        &format!("patch provisionerclass core-rukpak-io-plain --type=merge -p {targets}"),
    )
    .await;
    until(&cluster, "bundledeployment inside", "Installed", "True").await;
    assert!(get(&cluster, what).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_objects_that_the_target_namespace_makes_identical() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace web").await;
    let twice = format!("{UNPLACED}---\n{CONFIG_OF_WEB}");
    let reference = publish(&cluster, "team/twice:1", |folder| {
        bundle_of(folder, "twice", &twice)
    })
    .await;
    let target = json!({"targetNamespace": "web"});
    apply(&cluster, &deployment("web", &reference, &target)).await;
    let message = until(&cluster, "bundledeployment web", "Installed", "False").await;
    assert!(
        message.contains("duplicate objects") && message.contains("ConfigMap/web/settings"),
        "{message}"
    );
    let found = get(&cluster, "configmap settings -n web").await;
    assert!(found.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_keeps_a_namespace_of_the_webhook_that_the_class_does_not_name() {
    let (cluster, _webhook) = stage().await;
    let class_with = async |namespaces: serde_json::Value| {
        let spec = json!({"spec": {"targets": {"namespaces": namespaces}}});
        let patch = format!("patch provisionerclass core-rukpak-io-plain --type=merge -p {spec}");
        kubectl(&cluster, &patch).await;
    };
    let manifests = "apiVersion: v1
kind: Namespace
metadata: {name: bundle-system-state}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: beside, namespace: default}
";
    let reference = publish(&cluster, "team/state:1", |folder| {
        bundle_of(folder, "state", manifests)
    })
    .await;
    // The class allows the namespace only during the installation. This creates an inventory like
    // the inventories of earlier versions, which installed this namespace under every class.
    class_with(json!(["*", "bundle-system-state"])).await;
    let adopting = json!({"collision": "Adopt"});
    apply(&cluster, &deployment("state", &reference, &adopting)).await;
    installed(&cluster, "state").await;
    class_with(json!(["*"])).await;

    kubectl(&cluster, "delete bundledeployment state --wait=false").await;
    wait::until_true(LONG, "the condition names the namespace", || async {
        let object = get(&cluster, "bundledeployment state").await;
        let object = object.unwrap_or_default();
        let found = condition(&object, "Ready");
        let told = found["message"].as_str().unwrap_or_default();
        let expected =
            "1 object is left; namespaces of bundle-webhook are not deleted: Namespace/bundle-system-state";
        anyhow::ensure!(told.starts_with(expected), "{found}");
        Ok(true)
    })
    .await
    .unwrap();
    let orphan = json!({"spec": {"deletion": {"objects": "Orphan"}}});
    let patch = format!("patch bundledeployment state --type=merge -p {orphan}");
    kubectl(&cluster, &patch).await;
    wait::until_true(LONG, "the deployment is gone", || async {
        Ok(get(&cluster, "bundledeployment state").await.is_none())
    })
    .await
    .unwrap();
    let namespace = get(&cluster, "namespace bundle-system-state")
        .await
        .unwrap();
    assert!(
        namespace["metadata"]["deletionTimestamp"].is_null(),
        "{namespace}"
    );
    assert!(get(&cluster, "configmap beside -n default").await.is_none());
}
