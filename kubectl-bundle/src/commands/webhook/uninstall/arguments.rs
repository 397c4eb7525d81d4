//! Arguments of `uninstall`.

use clap::{Args, ValueEnum};

use super::Uninstall;
use crate::commands::webhook::reject_names;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DryRunMode, Environment};

/// Remove the objects that `install` created: webhook configurations, Pods, permissions, CRDs with
/// all of their objects, and namespaces.
///
/// The cluster is then as before the installation. While BundleDeployments exist, the command fails
/// unless --bundle-deployments is set. CRDs, namespaces and ProvisionerClasses that existed before
/// the installation are kept. An installation of Helm is not removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Remove an installation without BundleDeployments
  kubectl bundle uninstall

  # Also remove the objects of all bundles
  kubectl bundle uninstall --bundle-deployments=delete

  # Keep the objects of all bundles
  kubectl bundle uninstall --bundle-deployments=orphan

  # Print the objects that would be removed
  kubectl bundle uninstall --dry-run=client")]
pub(crate) struct Arguments {
    /// Names, which are rejected: other tools remove packages with this verb
    #[arg(value_name = "NAME", hide = true)]
    pub(crate) names: Vec<String>,
    /// Treatment of BundleDeployments and their installed objects
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) bundle_deployments: Option<DeploymentsMode>,
    /// System namespace of the installation [default: that of the ClusterRoleBinding
    /// bundle-webhook, else bundle-system]
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,
    /// Timeout of each step; 0 means no limit
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
    /// Returns the settings of `uninstall`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Uninstall> {
        reject_names(&self.names, "uninstall", "kubectl bundle delete NAME")?;
        Ok(Uninstall {
            deployments: self.bundle_deployments,
            namespace: self.system_namespace,
            wait: wait(true, &self.timeout)?,
            dry_run: self.dry_run.into(),
            cluster: self.kube.settings(environment)?,
        })
    }
}

/// Treatment of BundleDeployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeploymentsMode {
    /// Delete them and their installed objects
    Delete,
    /// Delete them and keep their installed objects
    Orphan,
}
