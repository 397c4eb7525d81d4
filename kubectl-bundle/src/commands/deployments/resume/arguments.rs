//! Arguments of `resume`.

use clap::Args;

use crate::commands::deployments::pause::{PauseFlags, PauseState, SetPauseState};
use crate::failure::Outcome;
use crate::flags::Environment;

/// Resume paused BundleDeployments: bundle-webhook installs the content of the template, and
/// corrects drift again.
///
/// The command removes spec.paused, even if another field manager set it. Other fields keep their
/// values and field managers. If one of several BundleDeployments cannot be resumed, the command
/// continues with the others, and ends with exit code 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Resume one BundleDeployment
  kubectl bundle resume web

  # Resume two
  kubectl bundle resume web shop

  # Validate the request only
  kubectl bundle resume web --dry-run=server")]
pub(crate) struct Arguments {
    /// Names, and flags of the write.
    #[command(flatten)]
    pub(crate) flags: PauseFlags,
}

impl Arguments {
    /// Returns the settings of `resume`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<SetPauseState> {
        self.flags.settings(PauseState::Resumed, environment)
    }
}
