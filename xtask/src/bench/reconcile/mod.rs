//! Costs of the reconciler: requests of an upgrade, many BundleDeployments, deleted objects,
//! `diff`, and growth with the number of objects. The rows for Flux run `e2e/peers/flux-apply`.
//! `e2e` starts the programs.

mod deletions;
mod growth;
mod many;
mod upgrade;

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::{Cluster, Webhook, WebhookOptions};

use super::table::Table;

/// Memory limit for bundles with 10,000 objects, which exceed the default limit.
const MEMORY: &str = "512Mi";

/// Sizes of the measurements.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    /// Number of objects of the bundle that is upgraded.
    objects: usize,
    /// Number of objects that the upgrade changes.
    changed: usize,
    /// Numbers of objects of the bundles that show the growth.
    growth: Vec<usize>,
    /// Number of objects that are deleted from each installed bundle.
    deletions: usize,
    /// Number of BundleDeployments that each step creates.
    deployments: Vec<usize>,
    /// Duration of the measurement of idle programs.
    idle: Duration,
}

impl Sizes {
    pub(super) fn new(small: bool, deployments: usize) -> Self {
        if small {
            Self {
                objects: 50,
                changed: 5,
                growth: vec![20, 100],
                deletions: 10,
                deployments: vec![3, 20],
                idle: Duration::from_secs(5),
            }
        } else {
            Self {
                objects: 1_000,
                changed: 10,
                growth: vec![100, 1_000, 10_000],
                deletions: 200,
                deployments: vec![deployments.div_ceil(10), deployments],
                idle: Duration::from_secs(60),
            }
        }
    }
}

pub(super) async fn measure(sizes: &Sizes) -> Result<Vec<(&'static str, Table)>> {
    let mut tables = vec![("reconcile-requests", upgrade::measure(sizes).await?)];
    tables.extend(growth::measure(sizes).await?);
    tables.extend(many::measure(sizes).await?);
    Ok(tables)
}

async fn start(audit: bool) -> Result<Cluster> {
    Cluster::builder()
        .registries(1)
        .audit(audit)
        .start()
        .await
        .context("cannot start a cluster to measure on")
}

/// Starts the webhook. The pod does not check for moved sources during the measurements.
async fn start_webhook(cluster: &Cluster, flags: &[&str]) -> Result<Webhook> {
    let options = WebhookOptions {
        source_check_interval: Duration::from_secs(3_600),
        flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..WebhookOptions::default()
    };
    cluster.start_webhook(options).await
}
