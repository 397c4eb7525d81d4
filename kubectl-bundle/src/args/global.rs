//! Flags that several verbs share: talk, the cluster, registries.
//! Not here: what stands in their place when they are absent (settings).

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say each step
    #[arg(short, long, global = true, action = ArgAction::SetTrue)]
    pub(crate) verbose: bool,
    /// When to use colour; `auto` heeds NO_COLOR and terminals
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

impl Default for Global {
    /// What holds where the arguments could not be read.
    fn default() -> Self {
        Self {
            quiet: false,
            verbose: false,
            color: Color::Auto,
        }
    }
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Which cluster, and as whom: kubectl's own flags.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Cluster options")]
pub(crate) struct Kube {
    /// Path of the kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace, where a verb needs one [default: the context's]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// How long one request may take, such as 5s or 1m; 0 is without limit
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) request_timeout: String,
    /// Act as this user, as the API server's impersonation allows
    #[arg(long = "as", value_name = "USER")]
    pub(crate) act_as: Option<String>,
    /// Act as a member of this group; may be repeated
    #[arg(long, value_name = "GROUP", requires = "act_as")]
    pub(crate) as_group: Vec<String>,
}

/// How to talk to registries. Credentials come from docker's and podman's own files and helpers.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Registry options")]
pub(crate) struct Registry {
    /// Also trust the certificates in this PEM file; may be repeated
    #[arg(long = "registry-ca", visible_alias = "ca-file", value_name = "FILE")]
    pub(crate) ca: Vec<PathBuf>,
    /// Talk plain HTTP to this HOST[:PORT]; may be repeated. Loopback addresses need no mention
    #[arg(long, value_name = "HOST")]
    pub(crate) plain_http: Vec<String>,
    /// How long to wait for a registry, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    #[expect(clippy::struct_field_names, reason = "the flag is called so")]
    pub(crate) registry_timeout: String,
}

/// Whether the cluster is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Change it
    None,
    /// Only say what would be sent
    Client,
    /// Let the server decide, and change nothing
    Server,
}
