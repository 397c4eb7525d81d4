//! `cargo xtask demo`: tells the story of the product on a real Kubernetes, each line as a person would type it, with its real output.
//! What is typed and what must come of it is in `e2e::story`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use e2e::story::{self, Narrator, Teller};
use e2e::{Cluster, Output, WebhookOptions};
use tokio::signal::unix::{SignalKind, signal};

/// How to tell it.
#[derive(Debug, Args)]
#[command(after_help = "\
Starts etcd, kube-apiserver, kube-controller-manager and an OCI registry on free loopback ports, and bundle-webhook as a process.
Ctrl-C leaves no process behind.

Examples:
  cargo xtask demo
  cargo xtask demo --keep
  cargo xtask demo --context my-cluster")]
pub(crate) struct Arguments {
    /// Leave the cluster up at the end, print how to reach it, and stay until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Use the cluster of this context of your kubeconfig, whose API server must be able to reach this host's loopback addresses.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    // Before anything starts, so that a signal while it starts ends it in order as well.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        told = tell(&arguments) => told,
        _ = interrupt.recv() => Ok(eprintln!("\ndemo: ended")),
        _ = terminate.recv() => Ok(eprintln!("\ndemo: ended")),
    }
}

async fn tell(arguments: &Arguments) -> Result<()> {
    let began = Instant::now();
    let mut builder = Cluster::builder().registries(1);
    if let Some(context) = &arguments.context {
        builder = builder.existing(context);
    }
    let cluster = builder.start().await?;
    let mut webhook = cluster.start_webhook(WebhookOptions::default()).await?;
    let started = began.elapsed();
    println!(
        "Kubernetes {}, a registry and bundle-webhook answer after {:.1} s.",
        cluster
            .client()
            .await?
            .apiserver_version()
            .await?
            .git_version,
        started.as_secs_f64()
    );

    let mut terminal = Terminal::default();
    let folder = cluster.folder().join("story");
    {
        let mut teller = Teller::new(&cluster, &mut webhook, &mut terminal, folder).await?;
        for number in 0..story::CHAPTERS.len() {
            story::tell(&mut teller, number).await?;
        }
    }
    println!(
        "\n{} lines typed, {} things seen, in {:.1} s (and {:.1} s to start).",
        terminal.lines,
        terminal.seen,
        began.elapsed().saturating_sub(started).as_secs_f64(),
        started.as_secs_f64()
    );
    println!(
        "bundle-webhook holds {:.1} MiB.",
        mebibytes(webhook.rss_kib()?)
    );
    if arguments.keep {
        println!(
            "\nThe cluster stays until Ctrl-C:\n  export KUBECONFIG={}",
            cluster.kubeconfig().display()
        );
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

#[derive(Default)]
struct Terminal {
    lines: usize,
    seen: usize,
}

impl Narrator for Terminal {
    fn chapter(&mut self, number: usize, title: &str) {
        println!("\n━━ {number}. {title}\n");
    }

    fn say(&mut self, text: &str) {
        println!("   {text}\n");
    }

    fn ran(&mut self, output: &Output, took: Duration) {
        self.lines += 1;
        println!("$ {}", output.line);
        for text in [&output.stdout, &output.stderr] {
            if !text.trim().is_empty() {
                println!("{}", text.trim_end());
            }
        }
        println!("✓ {:.2} s\n", took.as_secs_f64());
    }

    fn seen(&mut self, what: &str, took: Duration) {
        self.seen += 1;
        println!("✓ {what} ({:.2} s)\n", took.as_secs_f64());
    }
}
