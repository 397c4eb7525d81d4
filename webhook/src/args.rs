//! What was typed: the flags of `bundle-webhook` and their help.
//! Not here: what follows from them and from the environment (settings).

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use jiff::SignedDuration;

use crate::budget::limit::Bytes;

/// Admission for bundles, and the reconciler that installs them.
///
/// Every replica serves admission; the one that holds the lease reconciles. Runs in a pod as its ServiceAccount, or
/// anywhere with --kubeconfig.
#[derive(Debug, Clone, Parser)]
#[command(name = "bundle-webhook", version, max_term_width = 120)]
pub struct Args {
    /// Kubeconfig of the identity to run as [default: the ServiceAccount of the pod]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Where admission is served, over TLS
    #[arg(long, value_name = "ADDR", default_value_t = any(9443))]
    pub listen: SocketAddr,

    /// Where /healthz, /readyz and /metrics are served, over plain HTTP
    #[arg(long, value_name = "ADDR", default_value_t = any(8080))]
    pub health_listen: SocketAddr,

    /// The system namespace: the lease of this program, and the Secrets and ConfigMaps that sources and policies name
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "bundle-system"
    )]
    pub namespace: String,

    /// The namespace of this program's own keys and records [default: the system namespace with `-state`]
    ///
    /// Has to differ from the system namespace, so that nobody who manages pull secrets can read the keys.
    #[arg(long, value_name = "NAME")]
    pub state_namespace: Option<String>,

    /// One more DNS name or IP address for the serving certificate; may be repeated
    ///
    /// The names of the Service are always in it.
    #[arg(long, value_name = "NAME")]
    pub san: Vec<String>,

    /// The Service in front of this program
    #[arg(long, value_name = "NAME", default_value = "bundle-webhook")]
    pub service: String,

    /// Name of the validating and the mutating webhook configuration, in which caBundle and path are kept right
    #[arg(long, value_name = "NAME", default_value = "bundle-webhook")]
    pub registration: String,

    /// How long a path with its unguessable last segment is used before another replaces it; 0s: until the next start
    ///
    /// The path before it is accepted for a minute longer.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub path_rotation_interval: SignedDuration,

    /// Certificate authorities (PEM): only API servers that present a client certificate of one of them are answered
    ///
    /// Read again when it changes. The AdmissionConfiguration of the API server says which certificate it presents.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Where unpacked content is kept; may be lost at any time
    #[arg(long, value_name = "DIR", default_value = "/var/cache/bundles")]
    pub cache_dir: PathBuf,

    /// The memory that the process may use, such as 128Mi [default: the limit of its cgroup, or 128Mi where there is none]
    ///
    /// Reviews, transfers and content share it out, so that they wait for each other instead of exceeding it.
    #[arg(long, value_name = "BYTES", env = "BUNDLE_MEMORY_LIMIT")]
    pub memory_limit: Option<Bytes>,

    /// The most that is kept in --cache-dir; what was used least recently goes first
    #[arg(long, value_name = "BYTES", default_value = "512Mi")]
    pub cache_limit: Bytes,

    /// One more certificate authority (PEM) that registries may be signed by
    #[arg(long, value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,

    /// Mirrors of registries, and those that are blocked: a file as containers-registries.conf(5) describes it
    ///
    /// Names stay what they are, for policies too; only the place that is asked differs. Read once, at the start.
    #[arg(long, value_name = "FILE")]
    pub registries_conf: Option<PathBuf>,

    /// How often a source with a tag is asked whether the tag has moved; 0s: never
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub source_check_interval: SignedDuration,

    /// How often the rights of those who asked for what is installed are asked again
    ///
    /// Before every change they are asked in any case.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub rights_check_interval: SignedDuration,

    /// How long a review may take; below the timeoutSeconds of the registration, so that the answer is ours
    #[arg(long, value_name = "DURATION", default_value = "8s")]
    pub review_deadline: SignedDuration,

    /// Who this replica is when it holds the lease [default: the host's name, which in a pod is the pod's]
    ///
    /// Has to differ between replicas. A process that finds the lease held by its own identity takes it at once:
    /// it is its own predecessor.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,

    /// How long the lease outlives a holder that died without giving it back
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub lease_duration: SignedDuration,

    /// Reconcile without a lease; right only where one replica can ever run
    #[arg(long)]
    pub no_leader_election: bool,

    /// How long to serve on after SIGTERM, while the API server learns that this replica is going
    ///
    /// [default: 5s in a pod, 0s elsewhere]
    #[arg(long, value_name = "DURATION")]
    pub drain_delay: Option<SignedDuration>,

    /// How long reviews in flight may take to finish after that
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub drain_timeout: SignedDuration,

    /// Format of the log, on stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// What to log: a level, or directives such as `info,bundle_webhook=debug`
    #[arg(
        long,
        value_name = "FILTER",
        env = "BUNDLE_LOG",
        default_value = "info"
    )]
    pub log_level: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// All addresses of the host, both families.
fn any(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }
}
