//! Flags that several verbs share: output, cluster, registries.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Print only errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print each step; from level 6 also each HTTP request, from 7 also its headers, as in kubectl
    #[arg(
        short,
        long,
        alias = "v",
        global = true,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1"
    )]
    pub(crate) verbose: Option<u8>,
    /// Use of colour; `auto` respects NO_COLOR and uses it only on terminals
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

impl Default for Global {
    /// Flags that are used if the arguments are invalid.
    fn default() -> Self {
        Self {
            quiet: false,
            verbose: None,
            color: Color::Auto,
        }
    }
}

/// Use of colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Cluster flags, as in kubectl.
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
    /// Timeout of each request, such as 5s or 1m; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) request_timeout: String,
    /// User to impersonate
    #[arg(long = "as", value_name = "USER")]
    pub(crate) act_as: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(long, value_name = "GROUP", requires = "act_as")]
    pub(crate) as_group: Vec<String>,
}

/// Registry flags. Credentials default to docker's and podman's files and helpers.
#[derive(Debug, Default, Args)]
#[expect(clippy::struct_field_names, reason = "the flags are called so")]
#[command(next_help_heading = "Registry options")]
pub(crate) struct Registry {
    /// Also trust the certificate authorities in this PEM file or folder (or a folder like docker's
    /// certs.d); may be repeated
    #[arg(
        long = "registry-ca",
        visible_alias = "ca-file",
        value_name = "FILE|DIR"
    )]
    pub(crate) ca: Vec<PathBuf>,
    /// Client certificate (PEM) for registries that require one
    #[arg(long, value_name = "FILE", requires = "registry_key")]
    pub(crate) registry_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "registry_cert")]
    pub(crate) registry_key: Option<PathBuf>,
    /// User for the registry of the reference, with --registry-password-stdin
    #[arg(
        long,
        visible_alias = "username",
        value_name = "USER",
        requires = "registry_password_stdin"
    )]
    pub(crate) registry_username: Option<String>,
    /// Read the password for the registry from the first line of standard input
    #[arg(long, requires = "registry_username")]
    pub(crate) registry_password_stdin: bool,
    /// Read a bearer token for the registry of the reference from the first line of standard input
    #[arg(long, conflicts_with = "registry_username")]
    pub(crate) registry_token_stdin: bool,
    /// Read credentials only from this file [default: $REGISTRY_AUTH_FILE, docker's and podman's
    /// files]
    #[arg(long, value_name = "FILE")]
    pub(crate) authfile: Option<PathBuf>,
    /// Read mirrors and blocked registries only from this file [default:
    /// $CONTAINERS_REGISTRIES_CONF, podman's files]
    #[arg(long, value_name = "FILE")]
    pub(crate) registries_conf: Option<PathBuf>,
    /// Use plain HTTP for this HOST[:PORT]; may be repeated. Detected automatically for loopback
    /// addresses
    #[arg(long, value_name = "HOST")]
    pub(crate) plain_http: Vec<String>,
    /// Timeout of registry requests, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) registry_timeout: String,
}

/// Mode of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Change the cluster
    None,
    /// Send nothing, and print what would be sent
    Client,
    /// Validate on the API server without storing
    Server,
}
