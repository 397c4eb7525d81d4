//! Arguments of `trust` and its verbs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::init::Init;
use super::reset::Reset;
use super::show::Show;
use super::update::Update;
use crate::commands::in_runtime;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags};
use crate::sigstore::root::TrustRootSettings;
use crate::ui::Ui;

/// Get trust roots from a TUF repository.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Verb.
    #[command(subcommand)]
    pub(crate) verb: TrustVerb,
}

impl Arguments {
    /// Runs the verb.
    pub(crate) fn run(self, environment: &Environment, ui: &mut Ui) -> Outcome {
        match self.verb {
            TrustVerb::Init(typed) => in_runtime(typed.settings(environment).run(ui)),
            TrustVerb::Update(typed) => in_runtime(typed.settings(environment).run(ui)),
            TrustVerb::Show(typed) => in_runtime(typed.settings(environment).run(ui)),
            TrustVerb::Reset => reset(environment).run(ui),
        }
    }
}

/// Verbs of `trust`.
#[derive(Debug, Subcommand)]
pub(crate) enum TrustVerb {
    /// Trust a TUF repository from now on
    Init(InitArguments),
    /// Refresh the trusted TUF repository now
    Update(UpdateArguments),
    /// Show the trust root in use, or print it
    Show(ShowArguments),
    /// Return to the built-in trust root
    #[command(after_help = "\
Examples:
  kubectl bundle trust reset")]
    Reset,
}

/// Trust a TUF repository. After this command, `verify`, `sign` and `policy test` read their trust
/// root from this repository, unless --trusted-root is set.
///
/// The metadata of the repository is refreshed once a day, and when the metadata has expired,
/// except with --offline. The default is the repository of the public Sigstore instance. For
/// another repository, --root must come from a trusted source, because the keys in this file sign
/// all other files. If the repository is invalid, nothing changes. The cluster does not use the
/// repository: see `trust show --root-file`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # The current trust root of the public instance
  kubectl bundle trust init

  # A private instance
  kubectl bundle trust init --mirror https://tuf.example.com --root root.json")]
pub(crate) struct InitArguments {
    /// URL of the repository
    #[arg(long, value_name = "URL", requires = "root")]
    pub(crate) mirror: Option<String>,
    /// Initial root.json of the repository
    #[arg(long, value_name = "FILE", requires = "mirror")]
    pub(crate) root: Option<PathBuf>,
    /// Connection flags.
    #[command(flatten)]
    pub(crate) connection: TufFlags,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

impl InitArguments {
    /// Returns the settings of `trust init`.
    pub(crate) fn settings(self, environment: &Environment) -> Init {
        Init {
            repository: self.mirror.zip(self.root),
            settings: self.connection.settings(environment),
            format: self.output.format(),
        }
    }
}

/// Refresh the TUF repository of `trust init` now, even if it was refreshed recently.
///
/// Exit code 3 means that the content of the repository is rejected. Exit code 4 means that the
/// repository did not respond. In both cases the stored metadata is kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle trust update")]
pub(crate) struct UpdateArguments {
    /// Connection flags.
    #[command(flatten)]
    pub(crate) connection: TufFlags,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

impl UpdateArguments {
    /// Returns the settings of `trust update`.
    pub(crate) fn settings(self, environment: &Environment) -> Update {
        Update {
            wanted: self.connection.settings(environment),
            format: self.output.format(),
        }
    }
}

/// Show the trust root that is used without flags: its origin and its expiry.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle trust show

  # Create the ConfigMap for keyless.trustRoot of policies in a cluster
  kubectl bundle trust show --root-file > trusted_root.json
  kubectl create configmap sigstore-root -n bundle-system --from-file=trusted_root.json --dry-run=client -o yaml | kubectl apply -f -")]
pub(crate) struct ShowArguments {
    /// Print the trusted_root.json itself
    #[arg(long, conflicts_with = "output")]
    pub(crate) root_file: bool,
    /// Do not refresh the TUF repository of `trust init`
    #[arg(long)]
    pub(crate) offline: bool,
    /// Connection flags.
    #[command(flatten)]
    pub(crate) connection: TufFlags,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

impl ShowArguments {
    /// Returns the settings of `trust show`.
    pub(crate) fn settings(self, environment: &Environment) -> Show {
        Show {
            wanted: TrustRootSettings {
                offline: self.offline,
                ..self.connection.settings(environment)
            },
            text: self.root_file,
            format: self.output.format(),
        }
    }
}

/// Returns the settings of `trust reset`.
pub(crate) fn reset(environment: &Environment) -> Reset {
    let connection = TufFlags {
        ca_file: Vec::new(),
    };
    Reset {
        wanted: connection.settings(environment),
    }
}

/// Connection flags of a TUF repository.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trust options")]
pub(crate) struct TufFlags {
    /// File of certificate authorities to trust in addition to the authorities of the system; may
    /// be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Vec<PathBuf>,
}

impl TufFlags {
    /// Returns the settings for the repository of `trust init`, with these connection flags.
    pub(crate) fn settings(self, environment: &Environment) -> TrustRootSettings {
        TrustRootSettings {
            file: None,
            offline: false,
            folders: environment.trust_folders(),
            ca_files: self.ca_file,
        }
    }
}
