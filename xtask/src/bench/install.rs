//! Installation of a thousand small objects: plain loops of server-side applies and of dry runs,
//! `kubectl apply --server-side`, `helm install`, Flux's library, and a BundleDeployment. The
//! BundleDeployment is measured with and without dry runs as the requester, and again with other
//! settings. `e2e` starts the programs.
#![expect(clippy::disallowed_methods, reason = "the benchmark chooses all names")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::cluster::manifests;
use e2e::{Cluster, Tool, WebhookOptions, bundles, wait};
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use serde_json::{Value, json};

use super::run::{self, Cost, mebibytes};
use super::table::Table;

const OBJECTS: usize = 1_000;
/// Number of concurrent requests. The reconciler uses the same number.
const IN_FLIGHT: usize = 16;
const ROUNDS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(900);

/// Resident memory of bundle-webhook in MiB.
pub(super) struct Memory {
    pub(super) idle: f64,
    pub(super) after: f64,
}

/// Builds and pushes a bundle of `count` ConfigMaps. Returns its pinned reference.
pub(super) async fn publish(cluster: &Cluster, name: &str, count: usize) -> Result<String> {
    let folder = write(cluster, name, count)?;
    push(cluster, &folder, &format!("{name}:1.0.0")).await
}

/// Builds and pushes the bundle in `folder`. Returns its pinned reference.
pub(super) async fn push(cluster: &Cluster, folder: &Path, tag: &str) -> Result<String> {
    let reference = cluster.registry(0)?.reference(tag);
    let folder = folder.display().to_string();
    let output = cluster
        .kubectl_bundle(["push", &folder, &reference])
        .await?
        .success()?;
    Ok(output.lines().last().unwrap_or_default().to_owned())
}

/// Writes a bundle of `count` ConfigMaps. Returns its folder.
pub(super) fn write(cluster: &Cluster, name: &str, count: usize) -> Result<PathBuf> {
    let folder = cluster.folder().join("bench").join(name);
    bundles::many(&folder, name, count)?;
    Ok(folder)
}

pub(super) async fn measure(cluster: &Cluster) -> Result<(Table, Memory)> {
    let webhook = cluster.start_webhook(WebhookOptions::default()).await?;
    // The idle memory is measured after the webhook has started.
    let idle = mebibytes(webhook.rss_kib()?);
    let flux_apply = cluster.flux_apply()?;
    let mut took: [Vec<f64>; 9] = Default::default();
    for round in 0..ROUNDS {
        let name = |what: &str| format!("{what}-{round}");
        let (dry, applied) = apply_without_reconciler(cluster, &name("bare"), OBJECTS).await?;
        took[0].push(applied);
        took[1].push(dry);
        took[2].push(kubectl(cluster, &name("kubectl")).await?);
        took[3].push(helm(cluster, &name("helm")).await?);
        took[4].push(flux(cluster, &flux_apply, &name("flux"), OBJECTS)?.seconds);
        for (check, column) in [("DryRun", 5), ("AccessReview", 7)] {
            requester_check(cluster, check).await?;
            let name = name(&format!("bundle-{}", check.to_lowercase()));
            took[column].push(deployment(cluster, &name, OBJECTS).await?);
            took[column + 1].push(settings(cluster, &name).await?);
        }
    }
    let after = mebibytes(webhook.rss_kib()?);
    let [
        bare,
        dry,
        kubectl,
        helm,
        flux,
        checked,
        checked_again,
        reviewed,
        reviewed_again,
    ] = took.map(median);
    let mut table = Table::new(&[
        "1,000 ConfigMaps",
        "s (median of 3)",
        "ratio to the bare loop",
    ]);
    for (name, seconds) in [
        (
            format!("bare loop of server-side applies, {IN_FLIGHT} in flight"),
            bare,
        ),
        ("the same loop as dry runs".to_owned(), dry),
        ("kubectl apply --server-side".to_owned(), kubectl),
        ("helm install, Helm 4".to_owned(), helm),
        (
            format!("flux-apply, {IN_FLIGHT} comparisons in flight"),
            flux,
        ),
        (
            "BundleDeployment, created to Installed, requesterCheck: DryRun".to_owned(),
            checked,
        ),
        (
            "the same BundleDeployment again, with other settings".to_owned(),
            checked_again,
        ),
        (
            "BundleDeployment, created to Installed, requesterCheck: AccessReview".to_owned(),
            reviewed,
        ),
        (
            "the same BundleDeployment again, with other settings".to_owned(),
            reviewed_again,
        ),
    ] {
        table.row([
            name,
            format!("{seconds:.2}"),
            format!("{:.2}", seconds / bare),
        ]);
    }
    Ok((table, Memory { idle, after }))
}

/// Sets `requesterCheck` of the default class.
async fn requester_check(cluster: &Cluster, check: &str) -> Result<()> {
    let patch = json!({"spec": {"requesterCheck": check}}).to_string();
    cluster
        .kubectl([
            "patch",
            "provisionerclass",
            "core-rukpak-io-plain",
            "--type=merge",
            "-p",
            &patch,
        ])
        .await?
        .success()?;
    Ok(())
}

/// Applies `count` objects without the reconciler: first as dry runs, then as real applies. Returns
/// both durations in seconds.
pub(super) async fn apply_without_reconciler(
    cluster: &Cluster,
    name: &str,
    count: usize,
) -> Result<(f64, f64)> {
    let folder = write(cluster, name, count)?;
    let objects = manifests::read_folder(&folder.join("manifests"))?;
    let client = cluster.client().await?;
    let (namespaces, rest): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .partition(|object| object["kind"] == "Namespace");
    let began = Instant::now();
    manifests::apply(&client, &namespaces).await?;
    let prepared = began.elapsed();
    let dry = patches(&client, &rest, true).await?;
    let applied = patches(&client, &rest, false).await?;
    Ok((dry, prepared.as_secs_f64() + applied))
}

/// Sends one apply for each object, with [`IN_FLIGHT`] concurrent requests. Returns the duration in
/// seconds.
pub(super) async fn patches(client: &Client, objects: &[Value], dry_run: bool) -> Result<f64> {
    let began = Instant::now();
    stream::iter(objects.iter().map(Ok::<_, anyhow::Error>))
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
                    &PatchParams {
                        dry_run,
                        ..PatchParams::apply("bench").force()
                    },
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

async fn helm(cluster: &Cluster, name: &str) -> Result<f64> {
    let folder = write(cluster, name, OBJECTS)?;
    fs_err::rename(folder.join("manifests"), folder.join("templates"))?;
    let chart = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    fs_err::write(folder.join("Chart.yaml"), chart)?;
    let command = cluster.tool(Tool::Helm).await?;
    let began = Instant::now();
    command
        .args(["install", name, &folder.display().to_string()])
        .output()
        .await?
        .success()?;
    Ok(began.elapsed().as_secs_f64())
}

/// Applies a bundle's manifests with the library of Flux.
pub(super) fn flux(cluster: &Cluster, program: &Path, name: &str, count: usize) -> Result<Cost> {
    let folder = write(cluster, name, count)?.join("manifests");
    let line = format!(
        "-kubeconfig {} -parallel-objects {IN_FLIGHT} {}",
        cluster.kubeconfig().display(),
        folder.display()
    );
    run::cost(run::command(program, cluster.folder(), &line))
}

/// Publishes and deploys a bundle. Returns the seconds from `deploy` to `Installed=True`.
pub(super) async fn deployment(cluster: &Cluster, name: &str, count: usize) -> Result<f64> {
    let reference = publish(cluster, name, count).await?;
    let client = cluster.client().await?;
    let began = Instant::now();
    cluster
        .kubectl_bundle(["deploy", name, &reference])
        .await?
        .success()?;
    until_installed(&client, name).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Installs the same content again, after a change of settings. The pod checks all objects, and
/// writes no object.
async fn settings(cluster: &Cluster, name: &str) -> Result<f64> {
    let client = cluster.client().await?;
    let began = Instant::now();
    let patch = json!({"spec": {"rollout": {"history": 4}}}).to_string();
    cluster
        .kubectl([
            "patch",
            "bundledeployment",
            name,
            "--type=merge",
            "-p",
            &patch,
        ])
        .await?
        .success()?;
    until_installed(&client, name).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Waits until the current spec is installed.
async fn until_installed(client: &Client, name: &str) -> Result<()> {
    let path = format!("/apis/core.rukpak.io/v1alpha1/bundledeployments/{name}");
    wait::until_true(DEADLINE, "the bundle is installed", || {
        let client = client.clone();
        let request = http::Request::get(&path).body(Vec::new());
        async move {
            let object: Value = client.request(request?).await?;
            let generation = &object["metadata"]["generation"];
            let installed = |condition: &Value| {
                condition["type"] == "Installed"
                    && condition["status"] == "True"
                    && condition["observedGeneration"] == *generation
            };
            Ok(object["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(installed)))
        }
    })
    .await
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
