//! The flags of `bundle-webhook` and their help. The module `settings` evaluates the flags.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use jiff::SignedDuration;

use crate::budget::limit::Bytes;

/// Admission webhook and reconciler for bundles
///
/// Every replica serves admission. The replica that holds the lease reconciles. The program runs in
/// a pod as the ServiceAccount of the pod, or on any machine with --kubeconfig.
#[derive(Debug, Clone, Parser)]
#[command(name = "bundle-webhook", version, max_term_width = 120)]
pub struct Args {
    /// Kubeconfig of the identity to run as [default: the ServiceAccount of the pod]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the admission endpoint, over TLS
    #[arg(long, value_name = "ADDR", default_value_t = all_interfaces(9443))]
    pub listen: SocketAddr,

    /// Address of the content service, over TLS
    #[arg(long, value_name = "ADDR", default_value_t = all_interfaces(8443))]
    pub content_listen: SocketAddr,

    /// Names of the content service.
    #[command(flatten)]
    pub content: ContentArgs,

    /// Address of /healthz, /readyz and /metrics, over plain HTTP
    #[arg(long, value_name = "ADDR", default_value_t = all_interfaces(8080))]
    pub health_listen: SocketAddr,

    /// System namespace. It contains the lease, and the Secrets and ConfigMaps that sources and
    /// policies name
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "bundle-system"
    )]
    pub namespace: String,

    /// Namespace of the keys and inventories of this program [default: the name of the system
    /// namespace with the suffix `-state`]
    ///
    /// This namespace must differ from the system namespace, so that users who manage pull secrets
    /// cannot read the keys.
    #[arg(long, value_name = "NAME")]
    pub state_namespace: Option<String>,

    /// Additional DNS name or IP address of the serving certificate; can be repeated
    ///
    /// The certificate always contains the names of the Service.
    #[arg(long, value_name = "NAME")]
    pub san: Vec<String>,

    /// Name of the Service of this program
    #[arg(long, value_name = "NAME", default_value = "bundle-webhook")]
    pub service: String,

    /// Name of the validating and the mutating webhook configuration. This program updates caBundle
    /// and path of both
    #[arg(long, value_name = "NAME", default_value = "bundle-webhook")]
    pub registration: String,

    /// Interval after which the secret last segment of the webhook path is replaced; 0s means only
    /// when the program starts
    ///
    /// The previous path is accepted for one more minute.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub path_rotation_interval: SignedDuration,

    /// Certificate authorities (PEM) of client certificates. API servers with other certificates
    /// are rejected
    ///
    /// The file is read again when it changes. The AdmissionConfiguration of the API server names
    /// the client certificate of the API server.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Directory of the content cache. All files in this directory can be deleted at any time
    #[arg(long, value_name = "DIR", default_value = "/var/cache/bundles")]
    pub cache_dir: PathBuf,

    /// Memory limit of the process, such as 128Mi [default: the limit of its cgroup, or 128Mi
    /// without a limit of the cgroup]
    ///
    /// Reviews, transfers and content share the memory. They wait for each other instead of
    /// exceeding the limit.
    #[arg(long, value_name = "BYTES", env = "BUNDLE_MEMORY_LIMIT")]
    pub memory_limit: Option<Bytes>,

    /// Maximum size of --cache-dir; the least recently used content is removed first
    #[arg(long, value_name = "BYTES", default_value = "512Mi")]
    pub cache_limit: Bytes,

    /// Additional certificate authority (PEM) for registries
    #[arg(long, value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,

    /// File with mirrors and blocked registries, in the format of containers-registries.conf(5)
    ///
    /// Only the host of the requests changes: policies and the status still contain the original
    /// references. The file is read once, at the start.
    #[arg(long, value_name = "FILE")]
    pub registries_conf: Option<PathBuf>,

    /// Interval of checks whether the tag of a source has moved; 0s means never
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub source_check_interval: SignedDuration,

    /// Interval of permission checks for the requesters of installed content
    ///
    /// Permissions are also checked before every change.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub rights_check_interval: SignedDuration,

    /// Time limit of a review. It must be below the timeoutSeconds of the registration, so that the
    /// response has a reason
    #[arg(long, value_name = "DURATION", default_value = "8s")]
    pub review_deadline: SignedDuration,

    /// Identity of this replica in the lease [default: the host name, which in a pod is the name of
    /// the pod]
    ///
    /// Each replica must have its own identity. A process that finds its own identity in the lease
    /// acquires the lease immediately, because the process is a restart of the holder.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,

    /// Time after which the lease of a failed holder expires
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub lease_duration: SignedDuration,

    /// Reconcile without a lease. This is only correct if exactly one replica can run
    #[arg(long)]
    pub no_leader_election: bool,

    /// Time to serve requests after SIGTERM, until the API server knows that this replica ends
    ///
    /// [default: 5s in a pod, 0s elsewhere]
    #[arg(long, value_name = "DURATION")]
    pub drain_delay: Option<SignedDuration>,

    /// Time limit for reviews in progress after --drain-delay
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub drain_timeout: SignedDuration,

    /// Format of the log on stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// Log filter: a level, or directives such as `info,bundle_webhook=debug`
    #[arg(
        long,
        value_name = "FILTER",
        env = "BUNDLE_LOG",
        default_value = "info"
    )]
    pub log_level: String,
}

/// The names of the content service. With `preset: rukpak`, the chart sets the names that RukPak
/// uses.
#[derive(Debug, Clone, clap::Args)]
pub struct ContentArgs {
    /// Name of the Service of the content service [default: the name of --service with the suffix
    /// `-content`]
    #[arg(long, value_name = "NAME")]
    pub content_service: Option<String>,

    /// URL of the content service for `status.contentURL` [default: its Service]
    #[arg(long, value_name = "URL")]
    pub content_url: Option<String>,

    /// Path of downloads. The name of a Bundle follows this path
    #[arg(long, value_name = "PATH", default_value = "/bundles/")]
    pub download_path: String,

    /// Path of uploads. The name of a Bundle follows this path
    #[arg(long, value_name = "PATH", default_value = "/uploads/")]
    pub upload_path: String,

    /// ClusterRole that error messages recommend to callers without permission to download
    #[arg(long, value_name = "NAME", default_value = "bundle-reader")]
    pub reader_role: String,

    /// ClusterRole that error messages recommend to callers without permission to upload
    #[arg(long, value_name = "NAME", default_value = "bundle-uploader")]
    pub uploader_role: String,

    /// Existing Secret of the system namespace in which this program writes the trusted certificate
    /// authorities, as `ca.crt` [default: none]
    #[arg(long, value_name = "NAME")]
    pub ca_secret: Option<String>,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Human-readable text.
    Text,
}

/// Returns the address of all interfaces, for IPv4 and IPv6.
fn all_interfaces(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }
}
