//! `cargo xtask soak`: long randomized tests on a real cluster.

use std::process;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use e2e::soak::{self, SoakMix, SoakOptions};
use rand::Rng;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let actors change and delete objects, upgrade bundles and kill the webhook at random.
    /// Compare the cluster with a model each time the actors stop.
    Drift(Random),
    /// Kill the webhook at random while packages are installed, upgraded, rolled back and removed.
    /// Compare the cluster with a model each time the actors stop.
    Kills(Kills),
    /// Run the scenarios of availability on a node, with two replicas under load.
    Availability(Availability),
}

#[derive(Debug, Args)]
pub(crate) struct Kills {
    /// Minimum number of kills.
    #[arg(long, default_value_t = 200)]
    kills: u32,
    #[command(flatten)]
    random: Random,
}

#[derive(Debug, Args)]
pub(crate) struct Random {
    /// Minutes after which no further round begins.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Seed of the random choices. By default, the command prints and uses a new seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of packages that are installed at the same time.
    #[arg(long, default_value_t = 3)]
    packages: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Availability {
    /// Number of rounds. Each round runs all scenarios. The first failure ends the command.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let (random, mix, min_kills) = match command {
        Command::Drift(random) => (random, SoakMix::Drift, 0),
        Command::Kills(kills) => (kills.random, SoakMix::Kills, kills.kills),
        Command::Availability(availability) => return run_availability(&availability),
    };
    ensure!(random.packages > 0, "--packages must be at least 1");
    let seed = random.seed.unwrap_or_else(|| rand::rng().random());
    eprintln!("soak: seed {seed}");
    let options = SoakOptions {
        mix,
        seed,
        duration: Duration::from_secs(random.minutes * 60),
        min_kills,
        round: Duration::from_secs(30),
        packages: random.packages,
    };
    let report = soak::run(options, &mut |line| eprintln!("soak: {line}")).await?;
    println!("{report} (seed {seed})");
    Ok(())
}

fn run_availability(availability: &Availability) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for round in 1..=availability.rounds {
        eprintln!("soak: round {round} of {}", availability.rounds);
        let status = process::Command::new(&cargo)
            .args(["test", "--workspace", "--locked", "--test", "e2e", "--"])
            .args([
                "node::availability",
                "--include-ignored",
                "--test-threads",
                "1",
            ])
            .status()
            .context("cannot start cargo, which runs the scenarios")?;
        ensure!(
            status.success(),
            "a scenario of availability failed in round {round}: see the message above"
        );
    }
    println!("{} rounds passed", availability.rounds);
    Ok(())
}
