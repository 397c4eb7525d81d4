//! `cargo xtask soak`: long randomized tests on a real cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use e2e::soak::{self, SoakOptions};
use rand::Rng;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let actors change, delete, upgrade and kill at random, and compare the cluster with a model
    /// each time they stop.
    Drift(Drift),
}

#[derive(Debug, Args)]
pub(crate) struct Drift {
    /// Minutes after which no further round begins.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Seed of the random choices. The default is a new one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Packages that are installed side by side.
    #[arg(long, default_value_t = 3)]
    packages: usize,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let Command::Drift(drift) = command;
    ensure!(drift.packages > 0, "--packages must be at least 1");
    let seed = drift.seed.unwrap_or_else(|| rand::rng().random());
    eprintln!("soak: seed {seed}");
    let options = SoakOptions {
        seed,
        duration: Duration::from_secs(drift.minutes * 60),
        round: Duration::from_secs(30),
        packages: drift.packages,
    };
    let report = soak::run(options, &mut |line| eprintln!("soak: {line}")).await?;
    let longest = report.convergence.iter().max().copied().unwrap_or_default();
    println!(
        "{} rounds converged, the longest after {:.1} s: {} changes, {} upgrades, {} removals and reinstallations, {} kills (seed {seed})",
        report.rounds,
        longest.as_secs_f64(),
        report.changes,
        report.upgrades,
        report.removals,
        report.kills,
    );
    Ok(())
}
