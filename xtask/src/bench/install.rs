//! Installation of a thousand small objects: plain loops of server-side applies and of dry runs,
//! `kubectl apply --server-side`, and a BundleDeployment. The BundleDeployment is measured with and
//! without dry runs as the requester, and again with other settings. `e2e` starts the programs.
#![expect(clippy::disallowed_methods, reason = "the benchmark chooses all names")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::cluster::manifests;
use e2e::{Cluster, WebhookOptions, bundles, wait};
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use serde_json::{Value, json};

use super::table::Table;

const OBJECTS: usize = 1_000;
/// Number of concurrent requests. The reconciler uses the same number.
const IN_FLIGHT: usize = 16;
const ROUNDS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(120);

/// Resident memory of bundle-webhook in MiB.
pub(super) struct Memory {
    pub(super) idle: f64,
    pub(super) after: f64,
}

/// Builds and pushes a bundle of `count` ConfigMaps. Returns its pinned reference.
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
    // The idle memory is measured after the work of the start.
    let idle = mebibytes(webhook.rss_kib()?);
    let mut took: [Vec<f64>; 7] = Default::default();
    for round in 0..ROUNDS {
        let name = |what: &str| format!("{what}-{round}");
        let (dry, applied) = bare_loop(cluster, &name("bare")).await?;
        took[0].push(applied);
        took[1].push(dry);
        took[2].push(kubectl(cluster, &name("kubectl")).await?);
        for (check, column) in [("DryRun", 3), ("AccessReview", 5)] {
            requester_check(cluster, check).await?;
            let name = name(&format!("bundle-{}", check.to_lowercase()));
            took[column].push(deployment(cluster, &name).await?);
            took[column + 1].push(settings(cluster, &name).await?);
        }
    }
    let after = mebibytes(webhook.rss_kib()?);
    let [
        bare,
        dry,
        kubectl,
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

/// Returns the duration of the dry runs and the duration of the applies, both in seconds.
async fn bare_loop(cluster: &Cluster, name: &str) -> Result<(f64, f64)> {
    let folder = write(cluster, name, OBJECTS)?;
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

async fn patches(client: &Client, objects: &[Value], dry_run: bool) -> Result<f64> {
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

async fn deployment(cluster: &Cluster, name: &str) -> Result<f64> {
    let reference = publish(cluster, name, OBJECTS).await?;
    let client = cluster.client().await?;
    let began = Instant::now();
    cluster
        .kubectl_bundle(["deploy", name, &reference])
        .await?
        .success()?;
    until_installed(&client, name).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Installs the same content again, after a change of settings.
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(super) fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}
