//! `cargo xtask cluster up`: hands a cluster to outsiders (any client, any foreign test suite) until they are done.
//! How it is started is in `e2e::cluster`.

use std::io::Write;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use e2e::{Cluster, WebhookOptions};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start one; when it is ready, print lines NAME=VALUE; stay until Ctrl-C or SIGTERM, then leave nothing behind.
    Up(Up),
}

/// What the cluster shall be like.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints, once all answers:
  KUBECONFIG=<file of an administrator>
  REGISTRY=<host:port>         one line per registry
  REGISTRY_CA=<file>           with --registry-tls
  SIGSTORE_URL=<url>           with --sigstore: issues identity tokens for the claims that are posted to /token
  SIGNING_CONFIG=<file>        with --sigstore: where its services are
  TRUSTED_ROOT=<file>          with --sigstore: whom to trust

Example:
  cargo xtask cluster up --webhook --sigstore
  cargo xtask cluster up --webhook --server-version v1.33.0-eks-abcdef0")]
pub(crate) struct Up {
    /// Deploy bundle-webhook and run it as a process on this host.
    #[arg(long)]
    webhook: bool,
    /// What the API server says its version is, for example v1.33.0-eks-abcdef0.
    #[arg(long, value_name = "V")]
    server_version: Option<String>,
    /// How many OCI registries.
    #[arg(long, value_name = "N", default_value_t = 1)]
    registries: usize,
    /// Let the registries speak TLS with a certificate of the cluster's authority.
    #[arg(long)]
    registry_tls: bool,
    /// Run a Sigstore beside it: identity tokens and certificates for whoever asks, a log and timestamps.
    #[arg(long)]
    sigstore: bool,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let Command::Up(up) = command;
    // Before anything starts, so that a signal while it starts ends it in order as well.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        ended = stay(&up) => return ended,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("cluster: ended");
    Ok(())
}

/// Starts the cluster and never ends by itself, unless something fails.
async fn stay(up: &Up) -> Result<()> {
    let began = std::time::Instant::now();
    let mut builder = Cluster::builder()
        .registries(up.registries)
        .registry_tls(up.registry_tls);
    if let Some(version) = &up.server_version {
        builder = builder.server_version(version);
    }
    let cluster = builder.start().await?;
    let webhook = if up.webhook {
        Some(cluster.start_webhook(WebhookOptions::default()).await?)
    } else {
        None
    };
    let sigstore = if up.sigstore {
        Some(cluster.sigstore().await?)
    } else {
        None
    };

    let mut out = std::io::stdout().lock();
    writeln!(out, "KUBECONFIG={}", cluster.kubeconfig().display())?;
    for registry in cluster.registries() {
        writeln!(out, "REGISTRY={}", registry.host())?;
        if let Some(ca) = registry.ca() {
            writeln!(out, "REGISTRY_CA={}", ca.display())?;
        }
    }
    if let Some(sigstore) = &sigstore {
        writeln!(out, "SIGSTORE_URL={}", sigstore.url())?;
        writeln!(
            out,
            "SIGNING_CONFIG={}",
            sigstore.signing_config().display()
        )?;
        writeln!(out, "TRUSTED_ROOT={}", sigstore.trusted_root().display())?;
    }
    out.flush()?;
    drop(out);
    eprintln!(
        "cluster: ready after {:.1} s; logs are in {}",
        began.elapsed().as_secs_f64(),
        cluster.logs().display()
    );
    eprintln!("cluster: Ctrl-C ends it");
    std::future::pending::<()>().await;
    drop((webhook, sigstore, cluster));
    Ok(())
}
