//! Arguments of `diff`.

use clap::Args;

use super::Diff;
use crate::artifact::location::ArtifactLocation;
use crate::commands::deployments::preview::{ExternalDiff, PreviewOutput};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, ObjectFormat, RegistryFlags};

/// Print the changes of an upgrade, or the drift of the installed objects.
///
/// The command sends each object of the content to the API server as a dry run, with your
/// permissions and the field manager of bundle-webhook. It compares the result with the live
/// object. Without REF, the command uses the content of the current template, so that the
/// differences are drift. Values of Secrets are masked. Changes of permissions, images and
/// CustomResourceDefinitions are summarized on stderr.
///
/// Exit codes: 0 no differences, 1 differences, 2 or more: the command failed.
/// KUBECTL_EXTERNAL_DIFF selects another program for the differences, as for `kubectl diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Preview an upgrade
  kubectl bundle diff web registry.example.com/team/web:1.5.0

  # Compare the cluster with the installed content
  kubectl bundle diff web

  # Preview a local folder before it is pushed
  kubectl bundle diff web ./web

  # The objects that would be deleted
  kubectl bundle diff web ./web -o json | jq -r '.objects[] | select(.change == \"deleted\") | .object'")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Reference, OCI layout or archive, or folder of manifests [default: content of the current
    /// template]
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: Option<String>,
    /// Output format; name prints the changed objects
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
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `diff`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Diff> {
        let source = self.source.as_deref();
        Ok(Diff {
            name: self.name,
            location: source.map(ArtifactLocation::source).transpose()?,
            registry: self.registry.settings(environment)?,
            output: PreviewOutput {
                format: self.output.map(Into::into),
                external: ExternalDiff::of(environment.external_diff.as_deref()),
            },
            cluster: self.kube.settings(environment)?,
        })
    }
}
