//! `cargo xtask chart`: the Helm chart of bundle-webhook as an archive, and its signed copy in a
//! registry. `e2e::chart` packs and pushes the chart.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use e2e::{Tool, chart};

use super::{SignerFlags, run_plugin};

/// Chart to pack.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the path of the archive on stdout; with --push, the reference of the chart with its digest. The credentials of the registry come from the configuration of Docker.

Examples:
  # an archive for `helm install`:
  cargo xtask chart --to target/chart
  # registry.example.com/charts/bundle-webhook:0.1.0, signed:
  cargo xtask chart --to target/chart --push registry.example.com/charts --key release.key")]
pub(crate) struct Arguments {
    /// Folder for the archive; an existing archive of the same version is replaced
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Push the chart to this folder of a registry, with the name and the version of the chart, and
    /// sign it
    #[arg(long, value_name = "FOLDER", requires = "signer")]
    push: Option<String>,
    #[command(flatten)]
    signer: SignerFlags,
}

/// Packs the chart, and pushes and signs it if `--push` is set.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    arguments.signer.require_push(arguments.push.is_some())?;
    let program = e2e::tools::path_async(Tool::Helm, None).await?;
    let helm = async |words: Vec<String>| run_helm(&program, &words);
    fs_err::create_dir_all(&arguments.to)?;
    let archive = chart::pack(&arguments.to, &helm).await?;
    let Some(folder) = &arguments.push else {
        println!("{}", archive.display());
        return Ok(());
    };
    let pinned = chart::push(&archive, folder, &[], &helm).await?;
    let plugin = &e2e::programs::get().await?.plugin;
    let mut sign = vec!["sign".to_owned(), pinned.clone()];
    sign.extend(arguments.signer.flags().unwrap_or_default());
    run_plugin(plugin, &sign)?;
    println!("{pinned}");
    Ok(())
}

/// Runs Helm with the environment of this process, and returns standard output and standard error.
fn run_helm(program: &Path, arguments: &[String]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .context("cannot start helm")?;
    let outputs = [output.stdout, output.stderr].map(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        text.trim().to_owned()
    });
    let both = outputs.join("\n");
    ensure!(
        output.status.success(),
        "`helm {}` failed: {}",
        arguments.join(" "),
        both.trim()
    );
    Ok(both)
}
