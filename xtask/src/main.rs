//! Tasks of this repository, as `cargo xtask COMMAND`: one file per command.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "results of a task go to stdout, and messages to stderr; it has no printer"
)]

mod apis;
mod bench;
mod book;
mod cluster;
mod demo;
mod fixtures;
mod fuzz;
mod generate;
mod model;
mod modules;
mod release;
mod schemas;
mod soak;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the table of Kubernetes' built-in APIs from the Go modules that the tests build.
    Apis,
    /// Measure speed and memory compared with baselines and other tools in the same run.
    Bench(bench::Arguments),
    /// Build the documentation as a book in target/book, and check its spelling.
    Book(book::Arguments),
    /// Pack the Helm chart of bundle-webhook, or push it to a registry.
    Chart(release::chart::Arguments),
    /// Start a real Kubernetes on loopback and run it until Ctrl-C.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Run the demo on a real Kubernetes, with each command and its output.
    Demo(demo::Arguments),
    /// Build the plugin for all platforms, and pack archives with checksums and a krew manifest.
    Dist(release::dist::Arguments),
    /// Generate the fixtures of unit tests for signatures, with real cosign and a local Sigstore
    /// instance.
    Fixtures(fixtures::Arguments),
    /// Run a fuzz target for a number of executions; fuzz/README.md lists its requirements.
    Fuzz(fuzz::Arguments),
    /// Write generated files: CRDs, the catalogue of diagnostics, the command reference, and the
    /// plain manifests of the chart.
    Gen(generate::Arguments),
    /// Build the container image of bundle-webhook as an OCI layout, or push it to a registry.
    Image(release::image::Arguments),
    /// Explore the model of a cluster with which the reconciler's plans are checked.
    Model(model::Arguments),
    /// Check import cycles, folders, headers of modules, names in pages, and the language rules.
    Modules,
    /// Write the table of the schemas of Kubernetes' built-in kinds from the Go module
    /// k8s.io/kubernetes of each supported version.
    Schemas,
    /// Run a randomized test for a long time.
    #[command(subcommand)]
    Soak(soak::Command),
    /// Run all checks: formatting, clippy, generated files, unit, doc and end-to-end tests.
    Test(test::Arguments),
    /// Build the tools for tests and the demo, and print the folder for PATH.
    Tools(tools::Arguments),
}

fn main() -> ExitCode {
    // The error is printed here. If `main` returned the error, Rust would print a backtrace when
    // RUST_BACKTRACE is set.
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
            Command::Apis => apis::run(),
            Command::Bench(arguments) => bench::run(&arguments).await,
            Command::Book(arguments) => book::run(&arguments),
            Command::Chart(arguments) => release::chart::run(&arguments).await,
            Command::Cluster(command) => cluster::run(command).await,
            Command::Demo(arguments) => demo::run(arguments).await,
            Command::Dist(arguments) => release::dist::run(&arguments).await,
            Command::Fixtures(arguments) => fixtures::run(arguments).await,
            Command::Fuzz(arguments) => fuzz::run(&arguments),
            Command::Gen(arguments) => generate::run(&arguments),
            Command::Image(arguments) => release::image::run(&arguments).await,
            Command::Model(arguments) => model::run(&arguments),
            Command::Modules => modules::check(&apis::root()?),
            Command::Schemas => schemas::run(),
            Command::Soak(command) => soak::run(command).await,
            Command::Test(arguments) => test::run(&arguments),
            Command::Tools(arguments) => tools::run(&arguments),
        }
    });
    // After Ctrl-C, the result of a running build is not needed. The build ends with this process.
    runtime.shutdown_background();
    ended
}
