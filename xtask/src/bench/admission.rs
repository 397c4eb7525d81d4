//! Latency of creating a Bundle in four cases: no webhook, a no-op Go webhook, the same Go webhook
//! with a patch, and bundle-webhook. The cases run in alternating rounds on the same API server.
//! `e2e` starts the programs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::{Cluster, WebhookOptions};
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::Client;
use serde_json::{Value, json};

use super::install;
use super::table::Table;

const IN_FLIGHT: usize = 50;
const REQUESTS: usize = 2_000;
const ROUNDS: usize = 3;

#[derive(Clone, Copy)]
enum Setting {
    Without,
    Noop,
    /// The no-op webhook returns a patch of the size of the stamp.
    Patching,
    Ours,
}

/// Sends create requests as dry runs: the API server calls the webhooks, and stores no objects.
pub(super) async fn measure(cluster: &Cluster) -> Result<Table> {
    // The manifests of bundle-webhook contain the CRDs. Each case registers and removes its own
    // webhooks.
    let webhook = cluster.start_webhook(WebhookOptions::default()).await?;
    let reference = install::publish(cluster, "small", 5).await?;
    let client = cluster.client().await?;
    webhook.wait_for_admission().await?;
    let stamp = stamp_size(&client, &reference).await?;
    let mut samples: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (index, setting) in [
            Setting::Without,
            Setting::Noop,
            Setting::Patching,
            Setting::Ours,
        ]
        .into_iter()
        .enumerate()
        {
            unregister(cluster).await?;
            let peer = match setting {
                Setting::Without => None,
                Setting::Noop => Some(cluster.start_noop_webhook(None).await?),
                Setting::Patching => Some(cluster.start_noop_webhook(Some(stamp)).await?),
                Setting::Ours => {
                    webhook.register().await?;
                    webhook.wait_for_admission().await?;
                    None
                }
            };
            // These requests are not measured. They fill caches and open connections, and the API
            // server loads the registrations.
            creates(&client, &reference, REQUESTS / 4).await?;
            samples[index].extend(creates(&client, &reference, REQUESTS).await?);
            if let Some(peer) = peer {
                peer.kill()?;
            }
        }
    }
    let names = [
        "no webhook",
        "no-op Go webhook",
        "no-op Go webhook with a patch",
        "bundle-webhook",
    ];
    let seen = samples.map(Percentiles::of);
    let [without, _, patching, _] = seen;
    let mut table = Table::new(&[
        "",
        "p50 ms",
        "p99 ms",
        "added p50 ms",
        "added p99 ms",
        "ratio to the patching no-op, p50",
        "ratio to the patching no-op, p99",
    ]);
    for (name, seen) in names.into_iter().zip(seen) {
        let added = (seen.p50 - without.p50, seen.p99 - without.p99);
        let ratio = |added: f64, peer: f64| {
            if peer > 0.0 {
                format!("{:.2}", added / peer)
            } else {
                "-".to_owned()
            }
        };
        table.row([
            name.to_owned(),
            format!("{:.2}", seen.p50),
            format!("{:.2}", seen.p99),
            format!("{:.2}", added.0),
            format!("{:.2}", added.1),
            ratio(added.0, patching.p50 - without.p50),
            ratio(added.1, patching.p99 - without.p99),
        ]);
    }
    Ok(table)
}

async fn unregister(cluster: &Cluster) -> Result<()> {
    cluster
        .kubectl([
            "delete",
            "validatingwebhookconfigurations,mutatingwebhookconfigurations",
            "--all",
            "--ignore-not-found",
        ])
        .await?
        .success()?;
    Ok(())
}

async fn creates(client: &Client, reference: &str, count: usize) -> Result<Vec<Duration>> {
    stream::iter(0..count)
        .map(|number| create(client.clone(), bundle(number, reference)))
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

pub(super) fn bundle(number: usize, reference: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": format!("bench-{number}")},
        "spec": {
            "provisionerClassName": "core-rukpak-io-plain",
            "source": {"type": "image", "image": {"ref": reference}}
        }
    })
}

pub(super) async fn create(client: Client, bundle: Value) -> Result<Duration> {
    let began = Instant::now();
    dry_run(&client, &bundle).await?;
    Ok(began.elapsed())
}

/// Creates `bundle` as a dry run, and returns the object that would be stored.
async fn dry_run(client: &Client, bundle: &Value) -> Result<Value> {
    let request = http::Request::post("/apis/core.rukpak.io/v1alpha1/bundles?dryRun=All")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(bundle)?)?;
    let stored = client.request(request).await;
    stored.context("a create of the benchmark failed")
}

/// Returns the size in bytes of the annotations that bundle-webhook adds to a Bundle.
async fn stamp_size(client: &Client, reference: &str) -> Result<usize> {
    let stored = dry_run(client, &bundle(0, reference)).await?;
    let annotations = stored["metadata"]["annotations"].as_object();
    let annotations = annotations.context("bundle-webhook added no annotation to the Bundle")?;
    Ok(annotations
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum())
}

/// Percentiles in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Percentiles {
    pub(super) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |share: usize| samples[(samples.len() - 1) * share / 100].as_secs_f64() * 1_000.0;
        Self {
            p50: at(50),
            p99: at(99),
        }
    }
}
