//! Arguments of `pause`, and the flags that `pause` and `resume` share.

use clap::Args;

use super::{PauseState, SetPauseState};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, DryRunMode, Environment, ObjectFormat};

/// Pause BundleDeployments: bundle-webhook installs no new content, and does not correct drift.
///
/// The command sets spec.paused: true. Installed objects stay, and drift is reported. Other fields
/// keep their values and field managers. If one of several BundleDeployments cannot be paused, the
/// command continues with the others, and ends with exit code 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Pause one BundleDeployment
  kubectl bundle pause web

  # Pause two, and print their names only
  kubectl bundle pause web shop -o name

  # Validate the request only
  kubectl bundle pause web --dry-run=server")]
pub(crate) struct Arguments {
    /// Names, and flags of the write.
    #[command(flatten)]
    pub(crate) flags: PauseFlags,
}

/// Names and flags of `pause` and `resume`.
#[derive(Debug, Args)]
pub(crate) struct PauseFlags {
    /// Names of the BundleDeployments
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Do not change the cluster; with `server`, the API server validates the request
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRunMode::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRunMode,
    /// Print the object in this format instead of the result; several objects are printed as one
    /// List
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        help_heading = "Output options"
    )]
    pub(crate) output: Option<ObjectFormat>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `pause`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<SetPauseState> {
        self.flags.settings(PauseState::Paused, environment)
    }
}

impl PauseFlags {
    /// Returns the settings of the verb that writes `state`.
    pub(crate) fn settings(
        self,
        state: PauseState,
        environment: &Environment,
    ) -> Outcome<SetPauseState> {
        Ok(SetPauseState {
            names: self.names,
            state,
            dry_run: self.dry_run.into(),
            format: self.output.map(Into::into),
            cluster: self.kube.settings(environment)?,
        })
    }
}
