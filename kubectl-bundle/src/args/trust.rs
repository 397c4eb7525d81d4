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
    /// Ask that repository now
    Update(TrustUpdate),
    /// Show which trust root counts, or print it
    Show(TrustShow),
    /// Go back to the trust root that is built in
    Reset,
}

/// Trust a TUF repository from now on: `verify`, `sign` and `policy test` take their trust root
/// from it, where no --trusted-root is given.
///
/// It is asked again once a day, and when what it said has expired; not with --offline. Without
/// flags it is that of the public Sigstore instance. For another one, --root has to come from a
/// place that you trust: everything else is signed by the keys in it. What is asked must hold, or
/// nothing changes. Pods are not told: see `trust show --root-file`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # The public instance, as it is today instead of as it was when this program was built
  kubectl bundle trust init

  # An instance of one's own
  kubectl bundle trust init --mirror https://tuf.example.com --root root.json")]
pub(crate) struct TrustInit {
    /// The address of the repository
    #[arg(long, value_name = "URL", requires = "root")]
    pub(crate) mirror: Option<String>,
    /// Its root.json, in which trust begins
    #[arg(long, value_name = "FILE", requires = "mirror")]
    pub(crate) root: Option<PathBuf>,
    /// Connection flags.
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
}

/// Ask the TUF repository of `trust init` now, however long ago that was done.
///
/// Exit code 3 means that what it says is refused, 4 that it did not answer; what was kept before
/// is kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle trust update")]
pub(crate) struct TrustUpdate {
    /// Connection flags.
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
}

/// Show which trust root counts where none is given by a flag: where it comes from, and until when
/// it is good.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle trust show

  # For a cluster, whose pods ask no TUF repository: the ConfigMap that policies name in keyless.trustRoot
  kubectl bundle trust show --root-file > trusted_root.json
  kubectl create configmap sigstore-root -n bundle-system --from-file=trusted_root.json --dry-run=client -o yaml | kubectl apply -f -")]
pub(crate) struct TrustShow {
    /// Print the trusted_root.json itself
    #[arg(long, conflicts_with = "output")]
    pub(crate) root_file: bool,
    /// Do not ask the repository
    #[arg(long)]
    pub(crate) offline: bool,
    /// Connection flags.
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Print as data
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Data>,
}

/// Connection flags of a TUF repository.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// A file of authorities to trust beside the system's; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Vec<PathBuf>,
}
