//! Rules of `bundle.yaml` about the cluster: required APIs and packages, and the installed versions
//! that a version can replace. The scenarios also test the versions that the spec of a
//! BundleDeployment allows.

use std::path::Path;

use e2e::Cluster;
use serde_json::{Value, json};

use crate::scenarios::objects::apply_with;
use crate::scenarios::reconcile::{
    LONG, apply, deployment, get, installed, kubectl, publish, stage, until, until_reason,
};

/// Writes a package with one ConfigMap, and these fields of `bundle.yaml`.
fn package(folder: &Path, name: &str, version: &str, fields: &str) -> anyhow::Result<()> {
    let manifests = folder.join("manifests");
    fs_err::create_dir_all(&manifests)?;
    let text = format!(
        "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: {name}\nversion: {version}\nformat: plain+v0\n{fields}"
    );
    fs_err::write(folder.join("bundle.yaml"), text)?;
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: rules}}\ndata: {{version: {version}}}\n"
    );
    fs_err::write(manifests.join("all.yaml"), object)?;
    Ok(())
}

async fn push(cluster: &Cluster, name: &str, version: &str, fields: &str) -> String {
    publish(cluster, &format!("team/{name}:{version}"), |folder| {
        package(folder, name, version, fields)
    })
    .await
}

async fn version_of(cluster: &Cluster, name: &str) -> Value {
    let object = get(cluster, &format!("configmap {name} -n rules")).await;
    object.map_or(Value::Null, |object| object["data"]["version"].clone())
}

async fn until_message(cluster: &Cluster, name: &str, part: &str) {
    e2e::wait::until(LONG, part, || async {
        let what = format!("bundledeployment {name}");
        let object = get(cluster, &what).await.unwrap_or_default();
        let found = crate::scenarios::objects::condition(&object, "Installed")["message"].clone();
        let found = found.as_str().unwrap_or_default();
        anyhow::ensure!(found.contains(part), "{found}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_waits_for_required_packages_and_apis_and_continues_once_they_exist() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace rules").await;
    let requires = "requires: {apis: [rules.example.com/v1/Jug], packages: [{name: rulebase, version: ^1.2}]}\n";
    let needs = push(&cluster, "needs", "1.0.0", requires).await;
    let low = push(&cluster, "rulebase", "1.1.0", "").await;
    let high = push(&cluster, "rulebase", "1.2.0", "").await;

    apply(&cluster, &deployment("needs", &needs, &json!({}))).await;
    let waiting = ("bundledeployment needs", "RequirementsMissing");
    let message = until_reason(&cluster, waiting.0, "Installed", waiting.1).await;
    assert_eq!(
        message,
        "package needs 1.0.0 has an unmet requirement: API rules.example.com/v1/Jug is not served; package needs 1.0.0 has an unmet requirement: package rulebase ^1.2 is not installed"
    );
    until(&cluster, waiting.0, "Progressing", "True").await;
    assert_eq!(version_of(&cluster, "needs").await, Value::Null);

    apply(&cluster, &deployment("rulebase", &low, &json!({}))).await;
    installed(&cluster, "rulebase").await;
    until_message(&cluster, "needs", "is not installed (installed: 1.1.0)").await;
    apply(&cluster, &deployment("rulebase", &high, &json!({}))).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "jugs.rules.example.com"},
        "spec": {
            "group": "rules.example.com", "scope": "Namespaced",
            "names": {"kind": "Jug", "listKind": "JugList", "plural": "jugs", "singular": "jug"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    apply(&cluster, &definition).await;
    installed(&cluster, "needs").await;
    assert_eq!(version_of(&cluster, "needs").await, "1.0.0");

    // Installed content is maintained even if its requirements are missing.
    kubectl(&cluster, "delete bundledeployment rulebase --timeout 80s").await;
    kubectl(&cluster, "delete configmap needs -n rules").await;
    e2e::wait::until_true(LONG, "the object is restored", || async {
        Ok(version_of(&cluster, "needs").await == "1.0.0")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_versions_that_the_package_can_replace_are_upgraded_and_none_is_downgraded() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace rules").await;
    let name = "ruled";
    let upgrades = "upgrades: {from: '>=1.2', minimum: 1.2.1}\n";
    let first = push(&cluster, name, "1.2.0", "").await;
    let second = push(&cluster, name, "1.3.0", "").await;
    let third = push(&cluster, name, "2.0.0", upgrades).await;
    let never_installed = push(&cluster, name, "1.4.0", "").await;
    let set = async |reference: &str, allowed: bool| {
        let rollout = json!({"rollout": {"allowDowngrade": allowed}});
        apply(&cluster, &deployment(name, reference, &rollout)).await;
    };
    let refused = async |expected: &str| {
        let message = until(&cluster, "bundledeployment ruled", "Installed", "False").await;
        assert!(message.contains(expected), "{message}");
    };
    set(&first, false).await;
    installed(&cluster, name).await;
    set(&third, true).await;
    refused("package ruled 2.0.0 replaces only versions >=1.2.1, and ruled 1.2.0 is installed")
        .await;
    assert_eq!(version_of(&cluster, name).await, "1.2.0");
    for reference in [&second, &third] {
        set(reference, false).await;
        installed(&cluster, name).await;
    }
    assert_eq!(version_of(&cluster, name).await, "2.0.0");
    set(&never_installed, false).await;
    refused("version 1.4.0 of ruled is lower than the installed version 2.0.0").await;
    assert_eq!(version_of(&cluster, name).await, "2.0.0");
    set(&never_installed, true).await;
    installed(&cluster, name).await;
    assert_eq!(version_of(&cluster, name).await, "1.4.0");
    // A rollback to a former revision is not a downgrade.
    set(&first, false).await;
    installed(&cluster, name).await;
    assert_eq!(version_of(&cluster, name).await, "1.2.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_package_replaces_the_installed_package_only_if_the_spec_allows_it() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace rules").await;
    let first = push(&cluster, "former", "1.0.0", "").await;
    let other = push(&cluster, "latter", "0.1.0", "").await;
    let set = async |reference: &str, allowed: bool| {
        let rollout = json!({"rollout": {"allowOtherPackage": allowed}});
        apply(&cluster, &deployment("swapped", reference, &rollout)).await;
    };
    set(&first, false).await;
    installed(&cluster, "swapped").await;
    set(&other, false).await;
    let message = until(&cluster, "bundledeployment swapped", "Installed", "False").await;
    let expected = "package latter 0.1.0 cannot replace package former";
    assert!(message.contains(expected), "{message}");
    assert_eq!(version_of(&cluster, "former").await, "1.0.0");
    assert_eq!(version_of(&cluster, "latter").await, Value::Null);
    set(&other, true).await;
    installed(&cluster, "swapped").await;
    assert_eq!(version_of(&cluster, "latter").await, "0.1.0");
    assert_eq!(version_of(&cluster, "former").await, Value::Null);
    // A rollback to a former revision needs no permission for another package.
    set(&first, false).await;
    installed(&cluster, "swapped").await;
    assert_eq!(version_of(&cluster, "former").await, "1.0.0");
    assert_eq!(version_of(&cluster, "latter").await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_outside_of_the_range_of_the_spec_are_not_installed() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace rules").await;
    let name = "pinned";
    let first = push(&cluster, name, "1.4.0", "").await;
    let second = push(&cluster, name, "1.5.0", "").await;
    let major = push(&cluster, name, "2.0.0", "").await;
    let set = async |reference: &str, versions: &str| {
        let rollout = json!({"rollout": {"versions": versions}});
        apply(&cluster, &deployment(name, reference, &rollout)).await;
    };
    let refused = async |expected: &str| {
        let message = until(&cluster, "bundledeployment pinned", "Installed", "False").await;
        assert!(message.contains(expected), "{message}");
    };
    let outside = |version: &str, range: &str| {
        format!("version {version} of the content is outside of the range {range}")
    };
    set(&first, "^1.5").await;
    refused(&outside("1.4.0", "^1.5")).await;
    for reference in [&first, &second] {
        set(reference, "^1.4").await;
        installed(&cluster, name).await;
    }
    set(&major, "^1.4").await;
    refused(&outside("2.0.0", "^1.4")).await;
    assert_eq!(version_of(&cluster, name).await, "1.5.0");
    set(&major, "^1.4 || ^2.0").await;
    installed(&cluster, name).await;
    assert_eq!(version_of(&cluster, name).await, "2.0.0");
    // Content of a former revision is allowed, although its version is outside of the range.
    set(&second, "^2.0").await;
    installed(&cluster, name).await;
    assert_eq!(version_of(&cluster, name).await, "1.5.0");

    let invalid = json!({"rollout": {"versions": "latest"}});
    let object = deployment(name, &second, &invalid);
    let rejected = apply_with(&cluster, &object, &[]).await.failure(1).unwrap();
    let expected = "spec.rollout.versions: invalid version range `latest`";
    assert!(rejected.contains(expected), "{rejected}");
}
