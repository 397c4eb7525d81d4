//! Chores of this repository, as `cargo xtask COMMAND`: one file per command.
//! What the product does is not here, and what a cluster is, is in `e2e`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore's results go to stdout and its talk to stderr; it has no printer"
)]

mod cluster;
mod generate;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a real Kubernetes on loopback and keep it until Ctrl-C.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Write the files that follow from the code: CRDs and the catalogue of diagnostics.
    Gen(generate::Arguments),
    /// Build the tools that tests and demo use, and print the folder to put on PATH.
    Tools(tools::Arguments),
}

fn main() -> ExitCode {
    // Not by returning it: that would print every chain with a backtrace where RUST_BACKTRACE is set.
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(async {
        match arguments.command {
            Command::Cluster(command) => cluster::run(command).await,
            Command::Gen(arguments) => generate::run(&arguments),
            Command::Tools(arguments) => tools::run(&arguments),
        }
    });
    // A build that Ctrl-C has made pointless is not waited for; it ends with this process.
    runtime.shutdown_background();
    ended
}
