//! Manifests, scripts and scenarios of RukPak, with RukPak's names.
//! `docs/reference/rukpak-scenarios.md` lists RukPak's own scenarios, with the tests of each
//! scenario.

mod api;
mod content;
mod definitions;
mod examples;
mod pivot;
mod preset;

use e2e::cluster::Builder;
use e2e::registry::{PASSWORD, USER};
use e2e::{Cluster, Tool, Webhook, WebhookOptions};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// RukPak's system namespace.
const NAMESPACE: &str = "rukpak-system";
const PLAIN: &str = "core-rukpak-io-plain";
const REGISTRY: &str = "core-rukpak-io-registry";

/// Returns the options of a webhook with the names of RukPak.
fn preset() -> WebhookOptions {
    WebhookOptions {
        values: Some(json!({"preset": "rukpak"})),
        // Git sources need this memory.
        flags: ["--memory-limit", "192Mi"].map(str::to_owned).into(),
        ..WebhookOptions::default()
    }
}

/// Starts a cluster, and a webhook with the names of RukPak.
async fn stage(builder: Builder) -> (Cluster, Webhook) {
    let cluster = builder.start().await.unwrap();
    let webhook = cluster.start_webhook(preset()).await.unwrap();
    (cluster, webhook)
}

/// Returns a BundleDeployment as in RukPak's documentation.
fn deployment(name: &str, bundle_class: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": PLAIN, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"provisionerClassName": bundle_class, "source": source},
        }},
    })
}

fn bundle(name: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": PLAIN, "source": source},
    })
}

fn image(reference: &str) -> Value {
    json!({"type": "image", "image": {"ref": reference}})
}

/// Returns the manifest of a ConfigMap for a bundle.
fn object(name: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{text: {text}}}\n"
    )
}

/// Returns a layer with these files.
fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Logs in at the registry, for [`push`].
async fn log_in(cluster: &Cluster) {
    let host = cluster.registry(0).unwrap().host();
    let crane = cluster.tool(Tool::Crane).await.unwrap();
    let crane = crane.args(["auth", "login", &host, "-u", USER, "-p", PASSWORD]);
    crane.output().await.unwrap().success().unwrap();
}

/// Pushes an image as `FROM scratch` and `COPY` build it: one layer of these files, without
/// annotations. Returns its reference.
async fn push(cluster: &Cluster, reference: &str, files: &[(&str, &str)]) -> String {
    let file = cluster.folder().join("data").join("layer.tar.gz");
    fs_err::write(&file, layer(files)).unwrap();
    let target = cluster.registry(0).unwrap().reference(reference);
    let crane = cluster.tool(Tool::Crane).await.unwrap();
    let file = file.display().to_string();
    let crane = crane.args(["append", "--new_layer", &file, "--new_tag", &target]);
    crane.output().await.unwrap().success().unwrap();
    target
}
