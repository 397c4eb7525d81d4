//! Arguments of `delete`.

use clap::Args;

use super::Delete;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DryRunMode, Environment};

/// Delete BundleDeployments. The field `spec.deletion` determines whether the installed objects are
/// deleted. If one of several BundleDeployments cannot be deleted, the command continues with the
/// others, and ends with exit code 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Delete, and wait until the objects are gone
  kubectl bundle delete web

  # Do not wait
  kubectl bundle delete web --wait=false")]
pub(crate) struct Arguments {
    /// Names of the BundleDeployments
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Wait until the BundleDeployments no longer exist
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// Timeout of --wait for all BundleDeployments together; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Report missing objects instead of failing
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Do not change the cluster; with `server`, the API server validates the request
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRunMode::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRunMode,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `delete`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Delete> {
        Ok(Delete {
            names: self.names,
            wait: wait(self.wait, &self.timeout)?,
            ignore_not_found: self.ignore_not_found,
            dry_run: self.dry_run.into(),
            cluster: self.kube.settings(environment)?,
        })
    }
}
