//! Arguments of `trust`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Data;

/// Get trust roots from a TUF repository.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Trust {
    /// Verb.
    #[command(subcommand)]
    pub(crate) verb: TrustVerb,
}

/// Verbs of `trust`.
#[derive(Debug, Subcommand)]
pub(crate) enum TrustVerb {
    /// Trust a TUF repository from now on
    Init(TrustInit),
    /// Refresh that repository now
    Update(TrustUpdate),
    /// Show the trust root in use, or print it
    Show(TrustShow),
    /// Return to the built-in trust root
    Reset,
}

/// Trust a TUF repository from now on: `verify`, `sign` and `policy test` take their trust root
/// from it, unless --trusted-root is set.
///
/// It is refreshed once a day and when its metadata has expired, except with --offline. Without
/// flags, it is the repository of the public Sigstore instance. For another one, --root has to come
/// from a trusted source, as its keys sign everything else. If the repository is invalid, nothing
/// changes. The cluster does not use it: see `trust show --root-file`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # The current trust root of the public instance
  kubectl bundle trust init

  # A private instance
  kubectl bundle trust init --mirror https://tuf.example.com --root root.json")]
pub(crate) struct TrustInit {
    /// URL of the repository
    #[arg(long, value_name = "URL", requires = "root")]
    pub(crate) mirror: Option<String>,
    /// Initial root.json of the repository
    #[arg(long, value_name = "FILE", requires = "mirror")]
    pub(crate) root: Option<PathBuf>,
    /// Connection flags.
    #[command(flatten)]
    pub(crate) connection: TufFlags,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
}

/// Refresh the TUF repository of `trust init` now, regardless of the last refresh.
///
/// Exit code 3 means that its content is rejected, 4 that it did not respond; the stored metadata
/// is kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle trust update")]
pub(crate) struct TrustUpdate {
    /// Connection flags.
    #[command(flatten)]
    pub(crate) connection: TufFlags,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
}

/// Show the trust root that is used without flags: its origin and its expiry.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle trust show

  # Create the ConfigMap for keyless.trustRoot of policies in a cluster
  kubectl bundle trust show --root-file > trusted_root.json
  kubectl create configmap sigstore-root -n bundle-system --from-file=trusted_root.json --dry-run=client -o yaml | kubectl apply -f -")]
pub(crate) struct TrustShow {
    /// Print the trusted_root.json itself
    #[arg(long, conflicts_with = "output")]
    pub(crate) root_file: bool,
    /// Do not refresh the repository
    #[arg(long)]
    pub(crate) offline: bool,
    /// Connection flags.
    #[command(flatten)]
    pub(crate) connection: TufFlags,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
}

/// Connection flags of a TUF repository.
#[derive(Debug, Args)]
pub(crate) struct TufFlags {
    /// File of certificate authorities to trust in addition to the system's; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Vec<PathBuf>,
}
