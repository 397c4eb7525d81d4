//! `cargo xtask bench`: speed and memory as ratios to a baseline or another tool in the same run,
//! printed and stored in `docs/explanation/benchmarks.md`. No measurement passes or fails.

mod admission;
mod checks;
mod footprint;
mod install;
mod oci;
mod pod;
mod reconcile;
mod restore;
mod run;
mod sources;
mod storm;
mod table;
mod trust;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use e2e::{Cluster, programs};

use table::Table;

/// Measurements.
#[derive(Debug, Args)]
#[command(after_help = "\
Programs are built with the release profile. Run the benchmarks on a machine without other load.

Examples:
  cargo xtask bench
  cargo xtask bench admission install --write")]
pub(crate) struct Arguments {
    /// Measurements to run [default: all]
    subjects: Vec<Subject>,
    /// Replace the tables in docs/explanation/benchmarks.md by the tables of this run.
    #[arg(long)]
    write: bool,
    /// Number of BundleDeployments of `reconcile` that are applied and then idle.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    deployments: u32,
    /// Run `pod` and a part of `trust`, `sources` and `reconcile` with unoptimized programs, to
    /// test the benchmarks themselves. The results are not meaningful.
    #[arg(long, conflicts_with = "write")]
    small: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Added latency of a Bundle create.
    Admission,
    /// `build` of 500 built-in objects, with and without their schemas.
    Checks,
    /// Installing a thousand small objects.
    Install,
    /// Restoring a thousand concurrent changes of other field managers.
    Storm,
    /// Restoring one object of small and large bundles.
    Restore,
    /// Requests of an upgrade, many BundleDeployments, deleted objects, `diff`, and growth with the
    /// number of objects, compared with Flux's library.
    Reconcile,
    /// Size and start of the programs, memory of the pod.
    Footprint,
    /// Packing and copying, up to 1 GiB.
    Oci,
    /// The chart on a node: start, memory, failover, reviews per second. Needs root and Linux.
    Pod,
    /// One large transfer of each source, compared with git and curl, a chart of 300 objects,
    /// compared with helm, and a thousand Bundles of each source at once.
    Sources,
    /// Decisions from proofs, `verify` compared with cosign, a thousand signed references and
    /// referrers.
    Trust,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.small {
        programs::prefer("release");
    }
    let wanted = |subject| arguments.subjects.is_empty() || arguments.subjects.contains(&subject);
    let mut tables: Vec<(&str, Table)> = Vec::new();
    if wanted(Subject::Admission) {
        let cluster = start().await?;
        tables.push(("admission", admission::measure(&cluster).await?));
    }
    if wanted(Subject::Checks) {
        tables.push(("checks", checks::measure().await?));
    }
    if wanted(Subject::Install) || wanted(Subject::Footprint) {
        let cluster = start().await?;
        let (install, memory) = install::measure(&cluster).await?;
        if wanted(Subject::Install) {
            tables.push(("install", install));
        }
        if wanted(Subject::Footprint) {
            tables.push(("footprint", footprint::measure(memory).await?));
        }
    }
    if wanted(Subject::Storm) {
        let cluster = start().await?;
        tables.push(("storm", storm::measure(&cluster).await?));
    }
    if wanted(Subject::Restore) {
        tables.push(("restore", restore::measure().await?));
    }
    if wanted(Subject::Reconcile) {
        let sizes = reconcile::Sizes::new(arguments.small, arguments.deployments as usize);
        tables.extend(reconcile::measure(&sizes).await?);
    }
    if wanted(Subject::Oci) {
        let cluster = Cluster::builder()
            .registries(2)
            .controller_manager(false)
            .start()
            .await
            .context("cannot start registries to measure on")?;
        tables.extend(oci::measure(&cluster).await?);
    }
    if wanted(Subject::Pod) {
        let profile = if arguments.small { "dev" } else { "release" };
        tables.push(("pod", pod::measure(profile).await?));
    }
    if wanted(Subject::Sources) {
        tables.extend(sources::measure(sources::Sizes::new(arguments.small)).await?);
    }
    if wanted(Subject::Trust) {
        tables.extend(trust::measure(trust::Sizes::new(arguments.small)).await?);
    }
    for (name, table) in &tables {
        println!("\n{name}\n\n{table}");
    }
    if arguments.write {
        table::write(&tables)?;
    }
    Ok(())
}

async fn start() -> Result<Cluster> {
    Cluster::builder()
        .registries(1)
        .start()
        .await
        .context("cannot start a cluster to measure on")
}
