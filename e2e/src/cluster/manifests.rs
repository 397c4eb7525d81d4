//! Applies manifests from files to a cluster: reads them, orders them, applies them server-side,
//! and waits for CRDs. This module prepares clusters for scenarios. The webhook installs bundles
//! with its own code.
#![expect(
    clippy::disallowed_methods,
    reason = "the code of the tests chooses all object names"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bundle_core::yaml;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind, TypeMeta};
use kube::discovery::{ApiResource, Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::Value;

use crate::wait;

/// Field manager of all objects that the harness applies.
const MANAGER: &str = "e2e";
const ESTABLISHED: Duration = Duration::from_secs(90);
/// Deadline for the API server to serve a kind after its CRD is established.
const SERVED: Duration = Duration::from_secs(90);

/// Returns all objects in the YAML files of `folder`, ordered by file name.
pub fn read_folder(folder: &Path) -> Result<Vec<Value>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("no YAML files in {}", folder.display());
    }
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        objects.extend(parse(&fs_err::read(&file)?, &file.display().to_string())?);
    }
    Ok(objects)
}

/// Returns all objects of a YAML text. Errors contain `name`.
pub fn parse(text: &[u8], name: &str) -> Result<Vec<Value>> {
    let documents = yaml::documents(text, name)
        .map_err(|findings| anyhow!("cannot read manifests:\n{findings}"))?;
    Ok(documents
        .into_iter()
        .map(|document| document.value)
        .collect())
}

/// Applies `objects` server-side with force. Applies namespaces and CRDs first, and waits until the
/// CRDs are established. Applies admission webhooks last.
pub async fn apply(client: &Client, objects: &[Value]) -> Result<()> {
    let mut ordered: Vec<&Value> = objects.iter().collect();
    ordered.sort_by_key(|object| rank(object));
    let mut awaited = Vec::new();
    let mut rank_before = 0;
    for object in ordered {
        // Custom resources can be applied only after their CRD is established.
        if rank(object) > rank_before {
            rank_before = rank(object);
            for name in awaited.drain(..) {
                wait_established(client, name).await?;
            }
        }
        let applied = apply_one(client, object).await;
        let is_unknown = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404);
        match applied {
            // The API server serves a kind only some time after its CRD is established, so the
            // request is retried.
            Err(error) if is_unknown(&error) => {
                let what = format!("cannot apply {}", title(object));
                wait::until_true(SERVED, &what, || async {
                    apply_one(client, object).await?;
                    Ok(true)
                })
                .await?;
            }
            applied => applied.with_context(|| format!("cannot apply {}", title(object)))?,
        }
        if object["kind"] == "CustomResourceDefinition" {
            awaited.push(
                object["metadata"]["name"]
                    .as_str()
                    .context("a CustomResourceDefinition without name")?,
            );
        }
    }
    for name in awaited {
        wait_established(client, name).await?;
    }
    Ok(())
}

async fn apply_one(client: &Client, object: &Value) -> Result<()> {
    let (resource, scope) = kind_of(client, object).await?;
    let name = object["metadata"]["name"]
        .as_str()
        .context("no metadata.name")?;
    let api: Api<DynamicObject> = match scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(
            client.clone(),
            object["metadata"]["namespace"]
                .as_str()
                .unwrap_or("default"),
            &resource,
        ),
    };
    api.patch(
        name,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(object),
    )
    .await?;
    Ok(())
}

async fn kind_of(client: &Client, object: &Value) -> Result<(ApiResource, Scope)> {
    let text = |name: &str| {
        object[name]
            .as_str()
            .map(ToOwned::to_owned)
            .with_context(|| format!("no {name}"))
    };
    let types = TypeMeta {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
    };
    let kind = GroupVersionKind::try_from(&types)
        .with_context(|| format!("unreadable apiVersion `{}`", types.api_version))?;
    let (resource, capabilities) = pinned_kind(client, &kind).await?;
    Ok((resource, capabilities.scope))
}

async fn wait_established(client: &Client, name: &str) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    wait::until_true(ESTABLISHED, &format!("CRD {name} is established"), || {
        let api = api.clone();
        async move {
            let object = api.get(name).await?;
            let conditions = object.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            Ok(conditions.iter().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            }))
        }
    })
    .await
}

/// Returns the position of the object in the order in which objects are applied.
fn rank(object: &Value) -> u8 {
    match object["kind"].as_str().unwrap_or_default() {
        "CustomResourceDefinition" | "Namespace" => 0,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => 2,
        _ => 1,
    }
}

fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!(
        "{} {}",
        text(&object["kind"]),
        text(&object["metadata"]["name"])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_dependencies_first_and_admission_last() {
        let text = "kind: ValidatingWebhookConfiguration\n---\nkind: ProvisionerClass\n---\nkind: Namespace\n";
        let mut objects = parse(text.as_bytes(), "all.yaml").unwrap();
        objects.sort_by_key(rank);
        let kinds: Vec<_> = objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "Namespace",
                "ProvisionerClass",
                "ValidatingWebhookConfiguration"
            ]
        );
    }

    #[test]
    fn errors_name_empty_folder_and_invalid_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_folder(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("no YAML files in "), "{error}");
        fs_err::write(folder.path().join("bad.yaml"), "a: [").unwrap();
        let error = read_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("bad.yaml"), "{error}");
    }
}
