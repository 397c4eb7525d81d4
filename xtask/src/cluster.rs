//! `cargo xtask cluster up`: provides a cluster for other clients and test suites. `e2e::cluster`
//! starts the cluster.

use std::io::Write;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use e2e::tools::KubernetesRelease;
use e2e::{Cluster, WebhookOptions};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster. When the cluster is ready, print shell assignments for `eval`. Run until
    /// Ctrl-C or SIGTERM. Then remove the cluster and its files.
    Up(Up),
}

/// Cluster settings.
#[derive(Debug, Args)]
#[command(after_help = "\
When all components are ready, the command prints:
  export KUBECONFIG='<file of an administrator>'
  export REGISTRY='<host:port>'         the first registry; the next ones are REGISTRY_2, REGISTRY_3, ...
  export REGISTRY_CA='<file>'           with --registry-tls or --node; REGISTRY_2_CA, ...
  export CONTENT_ADDRESS='<host:port>'  with --webhook: the content service, for curl --connect-to
  export SIGSTORE_URL='<url>'           with --sigstore: issues identity tokens for the claims that are posted to /token
  export SIGNING_CONFIG='<file>'        with --sigstore: the URLs of the signing services
  export TRUSTED_ROOT='<file>'          with --sigstore: the trust root

Example:
  cargo xtask cluster up --webhook --sigstore > cluster.env &
  # after the message `cluster: ready`
  eval \"$(cat cluster.env)\"
  cargo xtask cluster up --webhook --server-version v1.33.0-eks-abcdef0
  # with the namespace, Service and Secret of RukPak, for scripts that know only RukPak:
  cargo xtask cluster up --webhook --preset rukpak
  # with a node that pulls images from the registry:
  cargo xtask cluster up --node")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Up {
    /// Deploy bundle-webhook and run it as a process on this host.
    #[arg(long)]
    webhook: bool,
    /// Names of the deployed objects.
    #[arg(long, value_name = "NAME", requires = "webhook")]
    preset: Option<Preset>,
    /// Build the control plane from this Kubernetes release: 1.33 or 1.36.
    #[arg(long, value_name = "RELEASE", default_value_t)]
    kubernetes: KubernetesRelease,
    /// Version that the API server reports, for example v1.33.0-eks-abcdef0.
    #[arg(long, value_name = "V")]
    server_version: Option<String>,
    /// Number of OCI registries.
    #[arg(long, value_name = "N", default_value_t = 1)]
    registries: usize,
    /// Use TLS for the registries, with a certificate of the cluster's authority.
    #[arg(long)]
    registry_tls: bool,
    /// Run a node, which runs Pods. This requires root and Linux. Registries use TLS.
    #[arg(long)]
    node: bool,
    /// Run a Sigstore instance: identity tokens and certificates for every client, a transparency
    /// log and timestamps.
    #[arg(long)]
    sigstore: bool,
}

/// Preset of the chart.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Preset {
    /// The names of RukPak.
    Rukpak,
}

impl Preset {
    fn values(self) -> Value {
        match self {
            Self::Rukpak => json!({"preset": "rukpak"}),
        }
    }
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let Command::Up(up) = command;
    // The signals are caught before anything starts, so that a signal during the start also
    // triggers the cleanup.
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

/// Starts the cluster and runs until a signal or a failure.
async fn stay(up: &Up) -> Result<()> {
    let began = std::time::Instant::now();
    let mut builder = Cluster::builder()
        .release(up.kubernetes)
        .registries(up.registries)
        .registry_tls(up.registry_tls)
        .node(up.node);
    if let Some(version) = &up.server_version {
        builder = builder.server_version(version);
    }
    let cluster = builder.start().await?;
    let webhook = if up.webhook {
        let options = WebhookOptions {
            values: up.preset.map(Preset::values),
            ..WebhookOptions::default()
        };
        Some(cluster.start_webhook(options).await?)
    } else {
        None
    };
    let sigstore = if up.sigstore {
        Some(cluster.sigstore().await?)
    } else {
        None
    };

    let mut out = std::io::stdout().lock();
    export(&mut out, "KUBECONFIG", cluster.kubeconfig().display())?;
    for (index, registry) in cluster.registries().iter().enumerate() {
        let name = match index {
            0 => "REGISTRY".to_owned(),
            _ => format!("REGISTRY_{}", index + 1),
        };
        export(&mut out, &name, registry.host())?;
        if let Some(ca) = registry.ca() {
            export(&mut out, &format!("{name}_CA"), ca.display())?;
        }
    }
    if let Some(webhook) = &webhook {
        export(&mut out, "CONTENT_ADDRESS", webhook.content_address())?;
    }
    if let Some(sigstore) = &sigstore {
        export(&mut out, "SIGSTORE_URL", sigstore.url())?;
        let config = sigstore.signing_config();
        export(&mut out, "SIGNING_CONFIG", config.display())?;
        export(&mut out, "TRUSTED_ROOT", sigstore.trusted_root().display())?;
    }
    out.flush()?;
    drop(out);
    eprintln!(
        "cluster: ready after {:.1} s; logs are in {}",
        began.elapsed().as_secs_f64(),
        cluster.logs().display()
    );
    eprintln!("cluster: stop it with Ctrl-C");
    std::future::pending::<()>().await;
    drop((webhook, sigstore, cluster));
    Ok(())
}

/// Writes a shell assignment of a quoted value.
fn export(out: &mut impl Write, name: &str, value: impl std::fmt::Display) -> Result<()> {
    let quoted = value.to_string().replace('\'', "'\\''");
    writeln!(out, "export {name}='{quoted}'")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_values_are_quoted_for_the_shell() {
        let mut out = Vec::new();
        export(&mut out, "A", "it's $HOME `x`").unwrap();
        let script = format!("{}printf %s \"$A\"", String::from_utf8(out).unwrap());
        let read = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&read.stdout), "it's $HOME `x`");
    }
}
