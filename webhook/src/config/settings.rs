//! The settings of the program, from flags and environment, validated once. No other module reads
//! the environment.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bundle_core::object::is_dns_label;
use bundle_core::review::target::default_state_namespace;
use jiff::SignedDuration;
use rand::Rng as _;

use crate::budget::{self, limit};
use crate::config::args::{Args, LogFormat};
use crate::config::content::{ContentSettings, ContentSettingsError};

/// The file with the host name on Linux.
const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";

/// All settings, after validation.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "the help text of each flag documents the field of the same name"
)]
pub struct Settings {
    pub kubeconfig: Option<PathBuf>,
    pub listen: SocketAddr,
    pub content_listen: SocketAddr,
    pub content: ContentSettings,
    pub health_listen: SocketAddr,
    pub namespace: String,
    /// Namespace of the keys and inventories, which only the pod reads. It always differs from the
    /// system namespace.
    pub state_namespace: String,
    /// DNS names and IP addresses of the serving certificate. The names of the Service come first.
    pub names: Vec<String>,
    pub service: String,
    pub registration: String,
    /// Interval of rotating the secret path of the webhook. `None` disables the rotation.
    pub path_rotation_interval: Option<Duration>,
    pub client_ca_file: Option<PathBuf>,
    pub cache_dir: PathBuf,
    /// Maximum size of the content cache, in bytes.
    pub cache_limit: u64,
    /// Memory limit of the process, in bytes.
    pub memory_limit: u64,
    pub registry_ca: Option<PathBuf>,
    /// Folders in which external programs are looked up, separated by colons.
    pub search_path: OsString,
    /// Files with mirrors of registries.
    pub registries_conf: Option<PathBuf>,
    /// Interval of comparing sources with unpacked content. `None` disables the comparison.
    pub source_check_interval: Option<Duration>,
    pub rights_check_interval: Duration,
    pub review_deadline: Duration,
    pub identity: String,
    /// Time after which the lease of a failed holder expires. With `None`, this replica reconciles
    /// without a lease.
    pub lease_duration: Option<Duration>,
    pub drain_delay: Duration,
    pub drain_timeout: Duration,
    pub log_format: LogFormat,
    pub log_level: String,
}

/// A flag or variable has an invalid value.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A duration in a flag is out of range.
    #[error("--{flag} {given:#} {reason}")]
    Duration {
        /// Name of the flag, without dashes.
        flag: &'static str,
        /// The value of the flag.
        given: SignedDuration,
        /// The reason why the value is invalid.
        reason: &'static str,
    },
    /// The name of a namespace is invalid, or both namespaces have the same name.
    #[error("--{flag} {given:?} {reason}")]
    Namespace {
        /// Name of the flag, without dashes.
        flag: &'static str,
        /// The invalid name.
        given: String,
        /// The reason why the name is invalid.
        reason: &'static str,
    },
    /// An invalid name or path of the content service.
    #[error(transparent)]
    Content(#[from] ContentSettingsError),
    /// The memory limit is smaller than the minimum.
    #[error(
        "a memory limit of {given} bytes is too small: at least {least} bytes are needed ({} MiB)",
        .least >> 20
    )]
    Memory {
        /// The value of the flag, or the limit of the cgroup, in bytes.
        given: u64,
        /// The minimum memory limit, in bytes.
        least: u64,
    },
}

impl Settings {
    /// Validates the flags and combines them with the environment.
    pub fn from_args(args: Args) -> Result<Self, SettingsError> {
        let in_pod = args.kubeconfig.is_none() && env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let default_drain = SignedDuration::from_secs(if in_pod { 5 } else { 0 });
        let source_check_interval = unsigned("source-check-interval", args.source_check_interval)?;
        let lease_duration = unsigned("lease-duration", args.lease_duration)?;
        if lease_duration < Duration::from_secs(1) {
            return Err(SettingsError::Duration {
                flag: "lease-duration",
                given: args.lease_duration,
                reason: "is too short: the minimum of a Lease is 1 s",
            });
        }
        let path_rotation_interval =
            unsigned("path-rotation-interval", args.path_rotation_interval)?;
        if !path_rotation_interval.is_zero() && path_rotation_interval < Duration::from_secs(1) {
            return Err(SettingsError::Duration {
                flag: "path-rotation-interval",
                given: args.path_rotation_interval,
                reason: "is too short: the API server needs up to 1 s to use a new path",
            });
        }
        let review_deadline = unsigned("review-deadline", args.review_deadline)?;
        if review_deadline.is_zero() {
            return Err(SettingsError::Duration {
                flag: "review-deadline",
                given: args.review_deadline,
                reason: "must be greater than 0 s",
            });
        }
        let state_namespace = state_namespace(&args.namespace, args.state_namespace)?;
        let memory_limit = args
            .memory_limit
            .map(|bytes| bytes.0)
            .or_else(limit::of_cgroup)
            .unwrap_or(budget::DEFAULT_LIMIT);
        if memory_limit < budget::SMALLEST_LIMIT {
            return Err(SettingsError::Memory {
                given: memory_limit,
                least: budget::SMALLEST_LIMIT,
            });
        }
        let rights_check_interval = unsigned("rights-check-interval", args.rights_check_interval)?;
        if rights_check_interval < Duration::from_secs(1) {
            return Err(SettingsError::Duration {
                flag: "rights-check-interval",
                given: args.rights_check_interval,
                reason: "is too short: the minimum is 1 s",
            });
        }
        let content = ContentSettings::from_args(args.content, &args.service, &args.namespace)?;
        let services = [args.service.as_str(), &content.service];
        Ok(Self {
            names: names(services, &args.namespace, &content.host, args.san),
            kubeconfig: args.kubeconfig,
            listen: args.listen,
            content_listen: args.content_listen,
            content,
            health_listen: args.health_listen,
            namespace: args.namespace,
            state_namespace,
            service: args.service,
            registration: args.registration,
            path_rotation_interval: Some(path_rotation_interval)
                .filter(|interval| !interval.is_zero()),
            client_ca_file: args.client_ca_file,
            cache_dir: args.cache_dir,
            cache_limit: args.cache_limit.0,
            memory_limit,
            registry_ca: args.registry_ca,
            search_path: env::var_os("PATH").unwrap_or_default(),
            registries_conf: args.registries_conf,
            source_check_interval: Some(source_check_interval)
                .filter(|interval| !interval.is_zero()),
            rights_check_interval,
            review_deadline,
            identity: args.identity.unwrap_or_else(host_name),
            lease_duration: Some(lease_duration).filter(|_| !args.no_leader_election),
            drain_delay: unsigned("drain-delay", args.drain_delay.unwrap_or(default_drain))?,
            drain_timeout: unsigned("drain-timeout", args.drain_timeout)?,
            log_format: args.log_format,
            log_level: args.log_level,
        })
    }
}

/// Returns the DNS names of the Services of admission and content. The host of content URLs and the
/// additional names follow.
fn names(services: [&str; 2], namespace: &str, host: &str, more: Vec<String>) -> Vec<String> {
    let [admission, content] = services;
    let mut names = vec![
        format!("{admission}.{namespace}.svc"),
        format!("{admission}.{namespace}.svc.cluster.local"),
        format!("{admission}.{namespace}"),
        format!("{content}.{namespace}.svc"),
        format!("{content}.{namespace}.svc.cluster.local"),
    ];
    for name in std::iter::once(host.to_owned()).chain(more) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the namespace of keys and inventories: `given`, or the default for `system`. Validates
/// both names.
fn state_namespace(system: &str, given: Option<String>) -> Result<String, SettingsError> {
    let named = |flag, given: &str, reason| SettingsError::Namespace {
        flag,
        given: given.to_owned(),
        reason,
    };
    let no_name = "is not a valid namespace name";
    if !is_dns_label(system) {
        return Err(named("namespace", system, no_name));
    }
    let state = given.unwrap_or_else(|| default_state_namespace(system));
    if !is_dns_label(&state) {
        return Err(named("state-namespace", &state, no_name));
    }
    if state == system {
        let reason = "is the system namespace, whose Secrets other users can read";
        return Err(named("state-namespace", &state, reason));
    }
    Ok(state)
}

fn unsigned(flag: &'static str, given: SignedDuration) -> Result<Duration, SettingsError> {
    Duration::try_from(given).map_err(|_| SettingsError::Duration {
        flag,
        given,
        reason: "is negative",
    })
}

/// Returns the host name, or a random name if the host name is unknown.
fn host_name() -> String {
    fs_err::read_to_string(HOSTNAME_FILE)
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("bundle-webhook-{:08x}", rand::rng().random::<u32>()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn settings(flags: &[&str]) -> Result<Settings, SettingsError> {
        let line = std::iter::once("bundle-webhook").chain(flags.iter().copied());
        Settings::from_args(Args::try_parse_from(line).unwrap())
    }

    #[test]
    fn names_of_the_service_are_always_included_without_duplicates() {
        let settings = settings(&[
            "--namespace",
            "sys",
            "--service",
            "hook",
            "--san",
            "127.0.0.1",
            "--san",
            "hook.sys.svc",
        ])
        .unwrap();
        assert_eq!(
            settings.names,
            [
                "hook.sys.svc",
                "hook.sys.svc.cluster.local",
                "hook.sys",
                "hook-content.sys.svc",
                "hook-content.sys.svc.cluster.local",
                "127.0.0.1"
            ]
        );
        assert_eq!(settings.content.url, "https://hook-content.sys.svc");
    }

    #[test]
    fn state_namespace_defaults_to_a_namespace_beside_the_system_namespace() {
        let state = |flags: &[&str]| settings(flags).unwrap().state_namespace;
        assert_eq!(state(&[]), "bundle-system-state");
        assert_eq!(state(&["--namespace", "sys"]), "sys-state");
        let both = ["--namespace", "sys", "--state-namespace", "keys"];
        assert_eq!(state(&both), "keys");
    }

    #[test]
    fn rejects_namespaces_that_are_no_names_or_serve_both_purposes() {
        let long = "a".repeat(60);
        for (flags, message) in [
            (
                ["--namespace", "sys?watch=true"],
                r#"--namespace "sys?watch=true" is not a valid namespace name"#.to_owned(),
            ),
            (
                ["--state-namespace", "../sys"],
                r#"--state-namespace "../sys" is not a valid namespace name"#.to_owned(),
            ),
            (
                ["--namespace", &long],
                format!(r#"--state-namespace "{long}-state" is not a valid namespace name"#),
            ),
            (
                ["--state-namespace", "bundle-system"],
                r#"--state-namespace "bundle-system" is the system namespace, whose Secrets other users can read"#
                    .to_owned(),
            ),
        ] {
            assert_eq!(settings(&flags).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn parses_durations_with_units() {
        let settings = settings(&[
            "--source-check-interval",
            "2000ms",
            "--lease-duration",
            "1m",
        ])
        .unwrap();
        assert_eq!(settings.source_check_interval, Some(Duration::from_secs(2)));
        assert_eq!(settings.lease_duration, Some(Duration::from_secs(60)));
    }

    #[test]
    fn rejects_memory_limit_that_is_too_small() {
        assert_eq!(
            settings(&["--memory-limit", "16Mi"])
                .unwrap_err()
                .to_string(),
            "a memory limit of 16777216 bytes is too small: at least 100663296 bytes are needed (96 MiB)"
        );
        let settings = settings(&["--memory-limit", "256Mi"]).unwrap();
        assert_eq!(settings.memory_limit, 256 << 20);
    }

    #[test]
    fn zero_interval_disables_checks_and_no_election_disables_the_lease() {
        let settings =
            settings(&["--source-check-interval", "0s", "--no-leader-election"]).unwrap();
        assert_eq!(settings.source_check_interval, None);
        assert_eq!(settings.lease_duration, None);
    }

    #[test]
    fn rejects_durations_out_of_range() {
        for (flags, message) in [
            (
                ["--lease-duration", "100ms"],
                "--lease-duration 100ms is too short: the minimum of a Lease is 1 s",
            ),
            (
                ["--review-deadline", "0s"],
                "--review-deadline 0s must be greater than 0 s",
            ),
            (
                ["--drain-timeout", "5s ago"],
                "--drain-timeout 5s ago is negative",
            ),
            (
                ["--rights-check-interval", "0s"],
                "--rights-check-interval 0s is too short: the minimum is 1 s",
            ),
        ] {
            assert_eq!(settings(&flags).unwrap_err().to_string(), message);
        }
    }
}
