//! `cargo xtask model`: explores the model of a cluster in `crates/bundle-core/tests/model` with
//! larger limits than the tests.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

/// Test that reads the limits.
const TEST: &str = "states_within_the_limits_keep_the_invariants_and_converge";

/// Limits of the search.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Maximum number of states. A state uses 8 to 21 bytes of memory. An unexplored state uses
    /// about 110 bytes.
    #[arg(long, default_value_t = 100_000_000)]
    states: u64,
    /// Maximum number of disturbances on each path.
    #[arg(long, default_value_t = 6)]
    disturbances: u8,
    /// Explore first either the states near the initial state, or long paths.
    #[arg(long, value_enum, default_value = "breadth")]
    order: Order,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    Breadth,
    Depth,
}

/// Runs the search; the test prints the number of states.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let order = match arguments.order {
        Order::Breadth => "breadth",
        Order::Depth => "depth",
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["test", "--profile", "model", "--package", "bundle-core"])
        .args(["--test", "model", "--", "--exact", TEST])
        .args(["--include-ignored", "--nocapture"])
        .env("MODEL_STATES", arguments.states.to_string())
        .env("MODEL_DISTURBANCES", arguments.disturbances.to_string())
        .env("MODEL_ORDER", order)
        .status()
        .context("cannot start cargo, which builds the model")?;
    if !status.success() {
        bail!(
            "the model was not explored, or a state violates an invariant: see the message above"
        );
    }
    Ok(())
}
