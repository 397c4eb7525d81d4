//! Installing a thousand small objects: a bare loop of server-side applies, `kubectl apply --server-side`, and a BundleDeployment.
//! How the programs are started is in `e2e`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::{Cluster, WebhookOptions, bundles, manifests, wait};
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::table::Table;

const OBJECTS: usize = 1_000;
/// The reconciler's own.
const IN_FLIGHT: usize = 16;
const ROUNDS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(120);

/// RSS of bundle-webhook in MiB.
pub(super) struct Memory {
    pub(super) idle: f64,
    pub(super) after: f64,
}

/// Builds and pushes a bundle of `count` ConfigMaps; its pinned reference.
pub(super) async fn publish(cluster: &Cluster, name: &str, count: usize) -> Result<String> {
    let folder = write(cluster, name, count)?;
    let reference = cluster.registry(0)?.reference(&format!("{name}:1.0.0"));
    let folder = folder.display().to_string();
    let output = cluster
        .kubectl_bundle(["push", &folder, &reference])
        .await?
        .success()?;
    Ok(output.lines().last().unwrap_or_default().to_owned())
}

fn write(cluster: &Cluster, name: &str, count: usize) -> Result<PathBuf> {
    let folder = cluster.folder().join("bench").join(name);
    bundles::many(&folder, name, count)?;
    Ok(folder)
}

pub(super) async fn measure(cluster: &Cluster) -> Result<(Table, Memory)> {
    let webhook = cluster.start_webhook(WebhookOptions::default()).await?;
    // Idle is after its start-up work, not before it.
    let idle = mebibytes(webhook.rss_kib()?);
    let mut took: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        let name = |what: &str| format!("{what}-{round}");
        took[0].push(bare_loop(cluster, &name("bare")).await?);
        took[1].push(kubectl(cluster, &name("kubectl")).await?);
        took[2].push(deployment(cluster, &name("bundle")).await?);
    }
    let after = mebibytes(webhook.rss_kib()?);
    let [bare, kubectl, ours] = took.map(median);
    let mut table = Table::new(&["1,000 ConfigMaps", "s (median of 3)", "of the bare loop"]);
    for (name, seconds) in [
        (
            format!("bare loop of server-side applies, {IN_FLIGHT} in flight"),
            bare,
        ),
        ("kubectl apply --server-side".to_owned(), kubectl),
        ("BundleDeployment, created to Installed".to_owned(), ours),
    ] {
        table.row([
            name,
            format!("{seconds:.2}"),
            format!("{:.2}", seconds / bare),
        ]);
    }
    Ok((table, Memory { idle, after }))
}

async fn bare_loop(cluster: &Cluster, name: &str) -> Result<f64> {
    let folder = write(cluster, name, OBJECTS)?;
    let objects = manifests::read_folder(&folder.join("manifests"))?;
    let client = cluster.client().await?;
    let (namespaces, rest): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .partition(|object| object["kind"] == "Namespace");
    let began = Instant::now();
    manifests::apply(&client, &namespaces).await?;
    stream::iter(rest.iter().map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(IN_FLIGHT, |object| {
            let client = client.clone();
            async move {
                let namespace = object["metadata"]["namespace"]
                    .as_str()
                    .unwrap_or("default");
                let name = object["metadata"]["name"]
                    .as_str()
                    .context("an object without name")?;
                let api: Api<ConfigMap> = Api::namespaced(client, namespace);
                api.patch(
                    name,
                    &PatchParams::apply("bench").force(),
                    &Patch::Apply(object),
                )
                .await?;
                Ok(())
            }
        })
        .await?;
    Ok(began.elapsed().as_secs_f64())
}

async fn kubectl(cluster: &Cluster, name: &str) -> Result<f64> {
    let folder = write(cluster, name, OBJECTS)?
        .join("manifests")
        .display()
        .to_string();
    let began = Instant::now();
    cluster
        .kubectl(["apply", "--server-side", "-f", &folder])
        .await?
        .success()?;
    Ok(began.elapsed().as_secs_f64())
}

async fn deployment(cluster: &Cluster, name: &str) -> Result<f64> {
    let reference = publish(cluster, name, OBJECTS).await?;
    let client = cluster.client().await?;
    let began = Instant::now();
    cluster
        .kubectl_bundle(["deploy", name, &reference])
        .await?
        .success()?;
    let path = format!("/apis/core.rukpak.io/v1alpha1/bundledeployments/{name}");
    wait::until_true(DEADLINE, "the bundle is installed", || {
        let client = client.clone();
        let request = http::Request::get(&path).body(Vec::new());
        async move {
            let object: serde_json::Value = client.request(request?).await?;
            let installed = |condition: &serde_json::Value| {
                condition["type"] == "Installed" && condition["status"] == "True"
            };
            Ok(object["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(installed)))
        }
    })
    .await?;
    Ok(began.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(super) fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}
