//! Arguments of `delete`.

use clap::Args;

use super::{DryRun, Kube};

/// Delete BundleDeployments. Their `spec.deletion` determines whether the installed objects are
/// deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Delete, and wait until the objects are gone
  kubectl bundle delete web

  # Do not wait
  kubectl bundle delete web --wait=false")]
pub(crate) struct Delete {
    /// Names of the BundleDeployments
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Wait until they are gone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// Timeout of --wait; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Report missing objects instead of failing
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Do not change the cluster; with `server`, the API server validates the request
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRun::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRun,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
}
