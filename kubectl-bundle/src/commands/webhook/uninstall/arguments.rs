//! The arguments of `uninstall`.

use clap::{Args, ValueEnum};

use super::Uninstall;
use crate::commands::webhook::reject_names;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DryRunMode, Environment};

/// Remove what `install` created: registrations, pods, rights, CRDs with all of their objects, and namespaces.
///
/// The cluster is then as it was before the installation. While BundleDeployments exist, the command refuses unless
/// --bundle-deployments says what becomes of what they installed. What existed before the installation stays: CRDs, namespaces and
/// ProvisionerClasses. An installation by Helm is left to Helm.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Remove an installation that installs nothing
  kubectl bundle uninstall

  # Remove everything that bundles have installed as well
  kubectl bundle uninstall --bundle-deployments=delete

  # Leave what bundles have installed
  kubectl bundle uninstall --bundle-deployments=orphan

  # What would be removed
  kubectl bundle uninstall --dry-run=client")]
pub(crate) struct Arguments {
    /// The name of a bundle, which is for another verb
    #[arg(value_name = "NAME", hide = true)]
    pub(crate) names: Vec<String>,
    /// What becomes of BundleDeployments and what they installed
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) bundle_deployments: Option<BundleDeployments>,
    /// The system namespace of the installation [default: that of the pod's ClusterRoleBinding, else bundle-system]
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,
    /// How long each step may take; 0 is without limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Do not change the cluster: `server` asks it what it would do
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRunMode::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRunMode,
    /// Flags that select the cluster.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// The settings of `uninstall`.
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

/// What becomes of BundleDeployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BundleDeployments {
    /// Delete them and what they installed
    Delete,
    /// Delete them and leave what they installed
    Orphan,
}
