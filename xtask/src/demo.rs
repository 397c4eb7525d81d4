//! `cargo xtask demo`: runs the demo on a real Kubernetes cluster, and prints each command with its
//! output. `e2e::demo` has the commands and the expected results.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use e2e::demo::{self, DemoOutput, DemoRunner, Recording};
use e2e::{Cluster, Output, Webhook, WebhookOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Demo settings.
#[derive(Debug, Args)]
#[command(after_help = "\
Starts etcd, kube-apiserver, kube-controller-manager and an OCI registry on free loopback ports, and bundle-webhook as a process. \
All processes end with the command, also after Ctrl-C.

With --context, the demo uses an existing cluster. The registry and bundle-webhook are still processes on this host, so the API server \
must reach 127.0.0.1 of this host: k3s, kubeadm, or the none driver of minikube on this machine. You need cluster-admin permissions. \
The demo fails if one of its objects exists already. At the end, and on Ctrl-C, it removes all of its objects, the webhook \
configurations first. The webhook configurations are removed even if the demo is killed.

Examples:
  cargo xtask demo
  cargo xtask demo --keep
  cargo xtask demo --context my-cluster
  cargo xtask demo --record docs/demo.svg")]
pub(crate) struct Arguments {
    /// Keep all programs running at the end, print their addresses, and wait for Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Use the cluster of this context of your kubeconfig. The API server of the cluster must reach
    /// 127.0.0.1 of this host.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Write an excerpt of the session to this SVG file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    // The signals are caught before anything starts, so that a signal during the start also
    // triggers the cleanup.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut stage = DemoResources::default();
    let result = tokio::select! {
        result = run_chapters(&arguments, &mut stage) => result,
        () = interrupted(&mut interrupt, &mut terminate) => Ok(()),
    };
    let left = tokio::select! {
        left = stage.clean_up() => left,
        _ = interrupt.recv() => Err(anyhow!("interrupted during the cleanup; the next demo with this context continues it")),
    };
    match (result, left) {
        (Err(error), Err(also)) => Err(anyhow!("{error:#}\n{also:#}")),
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
        (Ok(()), Ok(())) => Ok(()),
    }
}

async fn interrupted(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("\ndemo: ended");
}

/// Resources of the demo, which are cleaned up after an interruption too.
#[derive(Default)]
struct DemoResources {
    cluster: Option<Cluster>,
    webhook: Option<Webhook>,
}

impl DemoResources {
    async fn clean_up(self) -> Result<()> {
        let Some(cluster) = self.cluster else {
            return Ok(());
        };
        if cluster.is_existing() {
            eprintln!("demo: removing its objects from the cluster");
        }
        cluster.leave(self.webhook).await
    }
}

async fn run_chapters(arguments: &Arguments, stage: &mut DemoResources) -> Result<()> {
    let began = Instant::now();
    let mut builder = Cluster::builder().registries(1);
    if let Some(context) = &arguments.context {
        builder = builder.existing(context);
    }
    let cluster = &*stage.cluster.insert(builder.start().await?);
    cluster.reserve(demo::OUTSIDE_OF_BUNDLES).await?;
    let webhook = stage
        .webhook
        .insert(cluster.start_webhook(WebhookOptions::default()).await?);
    let started = began.elapsed();
    println!(
        "Kubernetes {}, a registry and bundle-webhook are ready after {:.1} s.",
        cluster
            .client()
            .await?
            .apiserver_version()
            .await?
            .git_version,
        started.as_secs_f64()
    );

    let mut terminal = Terminal {
        recording: Recording::new(cluster.registry(0)?.host()),
        lines: 0,
        conditions: 0,
    };
    let folder = cluster.folder().join("demo");
    {
        let mut runner = DemoRunner::new(cluster, webhook, &mut terminal, folder).await?;
        for number in 0..demo::CHAPTERS.len() {
            demo::run_chapter(&mut runner, number).await?;
        }
    }
    if let Some(file) = &arguments.record {
        fs_err::write(file, terminal.recording.svg())?;
    }
    println!(
        "\n{} commands and {} observations in {:.1} s, after {:.1} s to start.",
        terminal.lines,
        terminal.conditions,
        began.elapsed().saturating_sub(started).as_secs_f64(),
        started.as_secs_f64()
    );
    println!(
        "bundle-webhook uses {:.1} MiB.",
        mebibytes(webhook.rss_kib()?)
    );
    if arguments.keep {
        let until = if cluster.is_existing() {
            "The objects of the demo stay until you press Ctrl-C"
        } else {
            "The cluster runs until you press Ctrl-C"
        };
        println!(
            "\n{until}:\n  export KUBECONFIG={}",
            cluster.kubeconfig().display()
        );
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

struct Terminal {
    recording: Recording,
    lines: usize,
    conditions: usize,
}

impl DemoOutput for Terminal {
    fn chapter(&mut self, number: usize, title: &str) {
        println!("\n━━ {number}. {title}\n");
    }

    fn say(&mut self, text: &str) {
        println!("   {text}\n");
    }

    fn ran(&mut self, output: &Output, took: Duration) {
        self.lines += 1;
        self.recording.add(output);
        println!("$ {}", output.line);
        // Messages are printed before the result.
        for text in [&output.stderr, &output.stdout] {
            if !text.trim().is_empty() {
                println!("{}", text.trim_end());
            }
        }
        println!("✓ {:.2} s\n", took.as_secs_f64());
    }

    fn observed(&mut self, what: &str, took: Duration) {
        self.conditions += 1;
        println!("✓ {what} ({:.2} s)\n", took.as_secs_f64());
    }
}
