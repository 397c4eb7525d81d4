//! Growth with the number of objects of one bundle: installation, `diff` and deleted objects.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::cluster::manifests;
use e2e::{Cluster, Webhook};

use super::super::install::{self, median};
use super::super::run::{mebibytes, peak_kib};
use super::super::table::Table;
use super::{MEMORY, Sizes, deletions};

/// Maximum number of objects of an installation that is repeated [`ROUNDS`] times. Larger
/// installations run once.
const REPEATED: usize = 1_000;
const ROUNDS: usize = 3;

/// Returns the tables of installation, `diff` and deleted objects.
pub(super) async fn measure(sizes: &Sizes) -> Result<[(&'static str, Table); 3]> {
    let cluster = super::start(false).await?;
    let webhook = super::start_webhook(&cluster, &["--memory-limit", MEMORY]).await?;
    let flux_apply = cluster.flux_apply()?;
    let mut growth = Table::new(&[
        "objects",
        "bare loop s",
        "flux-apply s",
        "BundleDeployment s",
        "ratio to the bare loop",
        "ratio to flux-apply",
        "flux-apply peak MiB",
        "pod peak MiB",
    ]);
    let mut diff = Table::new(&["objects", "bare dry runs s", "diff s", "ratio"]);
    let mut deleted = Table::new(&[
        "objects of the bundle",
        "deleted objects",
        "p50 s",
        "p99 s",
        "longest s",
        "aim",
    ]);
    for &count in &sizes.growth {
        let name = installation(&cluster, &webhook, &flux_apply, count, &mut growth).await?;
        diff.row(comparison(&cluster, &name, count).await?);
        let times = deletions::measure(&cluster, &name, sizes.deletions.min(count)).await?;
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        deleted.row([
            count.to_string(),
            times.len().to_string(),
            format!("{:.3}", at(50)),
            format!("{:.3}", at(99)),
            format!("{:.3}", at(100)),
            "p99 1 s".to_owned(),
        ]);
    }
    Ok([
        ("reconcile-growth", growth),
        ("reconcile-diff", diff),
        ("reconcile-deleted", deleted),
    ])
}

/// Installs `count` objects with each program. Returns the name of the last BundleDeployment.
async fn installation(
    cluster: &Cluster,
    webhook: &Webhook,
    flux_apply: &Path,
    count: usize,
    table: &mut Table,
) -> Result<String> {
    let rounds = if count <= REPEATED { ROUNDS } else { 1 };
    let (mut bare, mut flux, mut bundle) = (Vec::new(), Vec::new(), Vec::new());
    let mut flux_peak = 0.0_f64;
    let mut name = String::new();
    for round in 0..rounds {
        let (_, applied) =
            install::apply_without_reconciler(cluster, &format!("bare-{count}-{round}"), count)
                .await?;
        bare.push(applied);
        let cost = install::flux(cluster, flux_apply, &format!("flux-{count}-{round}"), count)?;
        flux.push(cost.seconds);
        flux_peak = flux_peak.max(cost.mebibytes);
        name = format!("bundle-{count}-{round}");
        bundle.push(install::deployment(cluster, &name, count).await?);
    }
    let (bare, flux, bundle) = (median(bare), median(flux), median(bundle));
    let pod_peak = mebibytes(peak_kib(webhook.pid()?).unwrap_or_default());
    table.row([
        count.to_string(),
        format!("{bare:.2}"),
        format!("{flux:.2}"),
        format!("{bundle:.2}"),
        format!("{:.2}", bundle / bare),
        format!("{:.2}", bundle / flux),
        format!("{flux_peak:.0}"),
        format!("{pod_peak:.0}"),
    ]);
    Ok(name)
}

/// Compares the installed objects with the manifests of the bundle: by dry runs of the benchmark,
/// and by `diff`.
async fn comparison(cluster: &Cluster, name: &str, count: usize) -> Result<[String; 4]> {
    let folder = install::write(cluster, name, count)?;
    let objects = manifests::read_folder(&folder.join("manifests"))?;
    let client = cluster.client().await?;
    let items: Vec<_> = objects
        .into_iter()
        .filter(|object| object["kind"] == "ConfigMap")
        .collect();
    let folder = folder.display().to_string();
    let (mut dry_runs, mut diff) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        dry_runs.push(install::patches(&client, &items, true).await?);
        let command = cluster.plugin().await?.args(["diff", name, &folder]);
        let began = Instant::now();
        let output = command.output().await?;
        diff.push(began.elapsed().as_secs_f64());
        // Exit code 1 means that the objects differ.
        ensure!(matches!(output.code, Some(0 | 1)), "{output}");
    }
    let (dry_runs, diff) = (median(dry_runs), median(diff));
    Ok([
        count.to_string(),
        format!("{dry_runs:.2}"),
        format!("{diff:.2}"),
        format!("{:.2}", diff / dry_runs),
    ])
}
