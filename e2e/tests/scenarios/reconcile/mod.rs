//! Bundles and BundleDeployments on a real API server, and helpers that the scenarios share.
//! `admission` tests admission responses; `harness::demo` kills the webhook during its steps.

use std::path::PathBuf;
use std::time::Duration;

use e2e::{Cluster, WebhookOptions, wait};
use serde_json::{Value, json};

use super::objects::{
    apply, apply_with_kubeconfig, condition, get, kubectl, try_get, try_kubectl, until,
    until_reason,
};

mod drift;
mod inventory;
mod lifecycle;
mod packages;
mod permissions;
pub(super) mod sources;
mod status;

const CLASS: &str = "core-rukpak-io-plain";
const LONG: Duration = Duration::from_secs(90);

/// Builds and pushes the bundle that `write` creates, and returns its pinned reference.
async fn publish(
    cluster: &Cluster,
    reference: &str,
    write: impl Fn(&std::path::Path) -> anyhow::Result<()>,
) -> String {
    let folder = cluster
        .folder()
        .join("data")
        .join(reference.replace([':', '/'], "-"));
    write(&folder).unwrap();
    let folder = folder.display().to_string();
    let reference = cluster.registry(0).unwrap().reference(reference);
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference, "--overwrite-tag"])
        .await
        .unwrap();
    pushed.success().unwrap().lines().last().unwrap().to_owned()
}

fn deployment(name: &str, reference: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {
            "provisionerClassName": CLASS,
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "provisionerClassName": CLASS,
                "source": {"type": "image", "image": {"ref": reference}},
            }},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

async fn installed(cluster: &Cluster, name: &str) {
    until(
        cluster,
        &format!("bundledeployment {name}"),
        "Installed",
        "True",
    )
    .await;
}

/// Installs `web` of [`CONFIG`] in an existing namespace `team-a`, and returns its
/// reference.
async fn install_web(cluster: &Cluster) -> String {
    let one = publish(cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    kubectl(cluster, "create namespace team-a").await;
    apply(cluster, &deployment("web", &one, &json!({}))).await;
    installed(cluster, "web").await;
    one
}

async fn stage() -> (Cluster, e2e::Webhook) {
    staged(Cluster::builder()).await
}

async fn staged(builder: e2e::cluster::Builder) -> (Cluster, e2e::Webhook) {
    let cluster = builder.registries(1).start().await.unwrap();
    let webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    (cluster, webhook)
}

/// Returns the kubeconfig of `user`@example.com, who has permission to write BundleDeployments and
/// to use each class.
async fn bundle_editor(cluster: &Cluster, user: &str, groups: &[&str]) -> PathBuf {
    let name = format!("{user}@example.com");
    for role in ["bundle-user", "bundle-editor"] {
        let line =
            format!("create clusterrolebinding {user}-{role} --clusterrole {role} --user {name}");
        kubectl(cluster, &line).await;
    }
    cluster.kubeconfig_for(&name, groups).unwrap()
}

/// Waits until a field of the object `what` has this value.
async fn soon(cluster: &Cluster, what: &str, pointer: &str, expected: &str) {
    let message = format!("{what}: {pointer} is {expected}");
    wait::until_true(LONG, &message, || async {
        let object = try_get(cluster, what).await?;
        let found = object.as_ref().and_then(|object| object.pointer(pointer));
        Ok(found.is_some_and(|value| value == expected))
    })
    .await
    .unwrap();
}

/// Writes a bundle of only these manifests.
pub(super) fn bundle_of(
    folder: &std::path::Path,
    name: &str,
    manifests: &str,
) -> anyhow::Result<()> {
    fs_err::create_dir_all(folder.join("manifests"))?;
    let package = format!(
        "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: {name}\nversion: 1.0.0\nformat: plain+v0\n"
    );
    fs_err::write(folder.join("bundle.yaml"), package)?;
    fs_err::write(folder.join("manifests").join("all.yaml"), manifests)?;
    Ok(())
}

const CONFIG: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: team-a}
data: {text: hello}
";
