//! Arguments of `deploy`.

use clap::{Args, ValueEnum};

use super::Deploy;
use crate::commands::deployments::arguments::{ContentFlags, WriteFlags};
use crate::commands::deployments::deployment_flags::DeploymentFlags;
use crate::commands::deployments::preview::{ExternalDiff, PreviewOutput};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, DryRunMode, Environment, RegistryFlags, invalid_flag};

/// Install a bundle: create or update a BundleDeployment with the Bundle in its template.
///
/// The same command with another reference upgrades. A tag is pinned to its current digest.
/// Settings without flags keep their values, and each changed field is printed. With --wait, the
/// command stops at permanent failures and prints the cause.
///
/// Objects without a namespace are installed into the namespace of -n (spec.targetNamespace).
/// Without -n, content with such objects is rejected; the namespace of the context is not used. A
/// ServiceAccount without a namespace is in the namespace of -n too; for another namespace, write
/// NAMESPACE/NAME. An operator bundle (registry+v1) is installed into the namespace of -n. Without
/// -n, the namespace that the bundle suggests is created and used.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Install, and wait until it is installed
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --wait

  # Upgrade, and wait until every object is healthy; all settings are kept
  kubectl bundle deploy web registry.example.com/team/web:1.5.0 --wait=healthy

  # Install objects without a namespace into team-a
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 -n team-a

  # The same, with team-a created if it is missing
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 -n team-a --create-namespace

  # Install as another ServiceAccount
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --service-account team-a/deployer

  # Print the object for a GitOps repository
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --dry-run=client -o yaml

  # Validate on the API server
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --dry-run=server

  # The same, with the changes of each object
  kubectl bundle deploy web registry.example.com/team/web:1.5.0 --dry-run=server --show=diff")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment, at most 45 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Flags of the content.
    #[command(flatten)]
    pub(crate) content: ContentFlags,
    /// Flags of the BundleDeployment.
    #[command(flatten)]
    pub(crate) deployment: DeploymentFlags,
    /// With --dry-run=server, also print the changes of the installed objects, as
    /// `kubectl bundle diff` does
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "output")]
    pub(crate) show: Option<ShowFlag>,
    /// Flags of writes.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `deploy`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Deploy> {
        if self.show.is_some() && self.write.dry_run != DryRunMode::Server {
            return Err(
                invalid_flag("--show", "a preview needs a dry run by the API server")
                    .hint("add --dry-run=server")
                    .into(),
            );
        }
        let show = self.show.map(|ShowFlag::Diff| PreviewOutput {
            format: None,
            external: ExternalDiff::of(environment.external_diff.as_deref()),
        });
        Ok(Deploy {
            show,
            content: self
                .content
                .settings(&self.reference, self.registry, environment)?,
            deployment: self
                .deployment
                .settings(self.name, &self.write, self.kube, environment)?,
        })
    }
}

/// Preview of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowFlag {
    /// Differences of each object
    Diff,
}
