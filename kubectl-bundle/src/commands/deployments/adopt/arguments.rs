//! Arguments of `adopt`.

use bundle_api::deployment::Collision;
use clap::Args;

use super::Adopt;
use crate::commands::deployments::arguments::{ContentFlags, WriteFlags};
use crate::commands::deployments::deployment_flags::DeploymentFlags;
use crate::commands::deployments::preview::{ExternalDiff, PreviewOutput};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, RegistryFlags, invalid_flag};

/// Install a bundle over existing objects, which then belong to its BundleDeployment.
///
/// The objects can come from `kubectl apply`, with or without kustomize, or from a Helm release.
/// The command first prints the changes of each object, as `kubectl bundle diff` does, and asks for
/// confirmation. It then creates or changes the BundleDeployment with spec.collision: Adopt.
/// bundle-webhook adopts the objects if you have permission to update them. Objects of another
/// BundleDeployment are never adopted.
///
/// Fields that only `kubectl apply` or Helm set are removed, unless the content has them. Fields of
/// other field managers stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Preview the changes, confirm, and wait until the content is installed
  kubectl bundle adopt web registry.example.com/team/web:1.4.0 --wait

  # Preview only
  kubectl bundle adopt web registry.example.com/team/web:1.4.0 --dry-run=server

  # Without a question, for scripts
  kubectl bundle adopt web registry.example.com/team/web:1.4.0 --yes")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment, at most 45 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Flags of the content.
    #[command(flatten)]
    pub(crate) content: ContentFlags,
    /// Flags of the BundleDeployment.
    #[command(flatten)]
    pub(crate) deployment: DeploymentFlags,
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
    /// Returns the settings of `adopt`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Adopt> {
        let mut deployment =
            self.deployment
                .settings(self.name, &self.write, self.kube, environment)?;
        let collision = &mut deployment.settings.collision;
        if *collision == Some(Collision::Prevent) {
            let message = "`kubectl bundle adopt` always sets spec.collision to Adopt";
            return Err(invalid_flag("--collision", message)
                .hint(
                    "omit --collision, or use `kubectl bundle deploy` to install without adoption",
                )
                .into());
        }
        *collision = Some(Collision::Adopt);
        Ok(Adopt {
            content: self
                .content
                .settings(&self.reference, self.registry, environment)?,
            is_confirmed: self.yes,
            is_attended: environment.is_attended(),
            preview: PreviewOutput {
                format: None,
                external: ExternalDiff::of(environment.external_diff.as_deref()),
            },
            deployment,
        })
    }
}
