//! Arguments of `unmanage`.

use clap::Args;

use super::Unmanage;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DryRunMode, Environment};

/// Delete BundleDeployments and keep their installed objects.
///
/// The command sets spec.deletion.objects: Orphan, deletes the BundleDeployments, and waits until
/// they are gone. bundle-webhook removes its labels from the objects, and deletes the Bundles. The
/// objects keep their values. No reconciler restores them any more. If one of several
/// BundleDeployments cannot be deleted, the command continues with the others, and ends with exit
/// code 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Keep the objects, and wait until the BundleDeployment is gone
  kubectl bundle unmanage web

  # The same for two BundleDeployments
  kubectl bundle unmanage web shop

  # Validate the requests only
  kubectl bundle unmanage web --dry-run=server")]
pub(crate) struct Arguments {
    /// Names of the BundleDeployments
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Wait until the BundleDeployments are gone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// Timeout of --wait for all BundleDeployments together; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Do not change the cluster; with `server`, the API server validates the requests
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRunMode::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRunMode,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `unmanage`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Unmanage> {
        Ok(Unmanage {
            names: self.names,
            wait: wait(self.wait, &self.timeout)?,
            dry_run: self.dry_run.into(),
            cluster: self.kube.settings(environment)?,
        })
    }
}
