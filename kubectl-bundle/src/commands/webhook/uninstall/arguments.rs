//! Arguments of `uninstall`.

use clap::{Args, ValueEnum};

use super::Uninstall;
use crate::commands::webhook::reject_names;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DryRunMode, Environment};

/// Remove the objects that `install` created: registrations, pods, permissions, namespaces, and
/// CRDs with all their objects.
///
/// After the command, the cluster is as before the installation. If BundleDeployments exist, the
/// command requires --bundle-deployments, which sets the handling of their installed objects. CRDs,
/// namespaces and ProvisionerClasses that existed before the installation are kept. Installations
/// by Helm are not removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Remove an installation without BundleDeployments
  kubectl bundle uninstall

  # Also delete the objects that bundles installed
  kubectl bundle uninstall --bundle-deployments=delete

  # Keep the objects that bundles installed
  kubectl bundle uninstall --bundle-deployments=orphan

  # Print the objects without removing them
  kubectl bundle uninstall --dry-run=client")]
pub(crate) struct Arguments {
    /// Name of a bundle. A name is an error: this verb removes only the webhook
    #[arg(value_name = "NAME", hide = true)]
    pub(crate) names: Vec<String>,
    /// Handling of BundleDeployments and their installed objects
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) bundle_deployments: Option<DeploymentsMode>,
    /// System namespace of the installation [default: the namespace in the pod's
    /// ClusterRoleBinding, else bundle-system]
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,
    /// Timeout of each step; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Do not change the cluster; with `server`, the API server validates the request
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

/// Handling of BundleDeployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeploymentsMode {
    /// Delete the BundleDeployments and their installed objects
    Delete,
    /// Delete the BundleDeployments and keep their installed objects
    Orphan,
}
