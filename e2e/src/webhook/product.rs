//! The objects of an installation: the plain manifests, or the chart as Helm renders it for given
//! values.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::deploy_folder;
use crate::cluster::{Cluster, manifests};
use crate::tools::Tool;

/// Image in the Deployment. No Pod runs this image.
const IMAGE: &str = "registry.example.com/kubectl-bundle/bundle-webhook";

/// Objects of an installation.
pub(super) struct Product {
    /// All objects except the admission registrations.
    pub(super) manifests: Vec<Value>,
    /// Admission registrations.
    pub(super) admission: Vec<Value>,
    /// System namespace.
    pub(super) namespace: String,
    /// Flags in the Deployment.
    pub(super) flags: Vec<String>,
}

impl Product {
    /// Returns the plain manifests, or the manifests that Helm renders for `values`.
    pub(super) async fn read(cluster: &Cluster, values: Option<&Value>) -> Result<Self> {
        let objects = if let Some(values) = values {
            render(cluster, values).await?
        } else {
            let mut objects = manifests::read_folder(&deploy_folder().join("manifests"))?;
            objects.extend(manifests::read_folder(&deploy_folder().join("admission"))?);
            objects
        };
        let (admission, manifests) = objects.into_iter().partition(is_registration);
        Self::new(manifests, admission)
    }

    fn new(manifests: Vec<Value>, admission: Vec<Value>) -> Result<Self> {
        let deployment = manifests
            .iter()
            .find(|object| object["kind"] == "Deployment");
        let deployment = deployment.context("the manifests have no Deployment")?;
        let namespace = deployment["metadata"]["namespace"].as_str();
        let namespace = namespace
            .context("the Deployment has no namespace")?
            .to_owned();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let flags = container["args"].as_array().into_iter().flatten();
        let flags = flags.filter_map(Value::as_str).map(ToOwned::to_owned);
        let flags = flags.collect();
        Ok(Self {
            manifests,
            admission,
            namespace,
            flags,
        })
    }
}

async fn render(cluster: &Cluster, values: &Value) -> Result<Vec<Value>> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/bundle-webhook");
    let mut values = values.clone();
    values["image"] = json!({"repository": IMAGE, "tag": "test"});
    values["test"] = json!({"enabled": false});
    let rendered = cluster
        .tool(Tool::Helm)
        .await?
        .args(["template", "bundle-webhook"])
        .args([&chart])
        .args(["--namespace", "default", "--kube-version", "1.33.0"])
        .args(["--api-versions", "core.rukpak.io/v1alpha1/ProvisionerClass"])
        .args(["--values", "-"])
        .stdin(values.to_string())
        .output()
        .await?
        .success()?;
    let objects = manifests::parse(rendered.as_bytes(), "charts/bundle-webhook")?;
    Ok(objects.into_iter().flat_map(items).collect())
}

/// Returns the items of a list, or the object itself.
fn items(object: Value) -> Vec<Value> {
    match object.get("items") {
        Some(Value::Array(items)) => items.clone(),
        _ => vec![object],
    }
}

fn is_registration(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    matches!(
        kind,
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration"
    )
}
