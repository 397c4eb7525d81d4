//! Arguments of `render`.

use clap::Args;

use super::Render;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::flags::{DataFormat, Environment, RegistryFlags};

/// Print the objects that would be installed, in the order in which they are applied.
///
/// Images are pinned to the digests in the lock file, operator bundles are converted, and charts
/// are rendered by helm. Content is parsed with the code of the reconciler. The objects have the
/// labels with which they are installed. Objects without a namespace get the namespace of -n. An
/// operator bundle is installed into the namespace of -n too. Without -n, it is installed into the
/// namespace that it suggests.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle render registry.example.com/team/web:1.4.0

  # Compare with the cluster
  kubectl bundle render ./web --name web -n team-a | kubectl diff -f -

  # The kinds and names
  kubectl bundle render ./web -o json | jq -r '.items[] | .kind + \"/\" + .metadata.name'")]
pub(crate) struct Arguments {
    /// Reference, OCI layout or archive, or folder of manifests
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: String,
    /// Name of the BundleDeployment, for the labels and the release of a chart [default: the name
    /// of the package]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Namespace of objects without a namespace, and of an operator bundle [default: none, and the
    /// namespace that the operator suggests]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Output format; JSON is a single List [default: yaml]
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        help_heading = "Output options"
    )]
    pub(crate) output: Option<DataFormat>,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `render`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Render> {
        let location = ArtifactLocation::source(&self.source)?;
        let settings = self.registry.settings(environment)?;
        Ok(Render {
            registry: match &location {
                ArtifactLocation::Registry(reference) => settings.of(reference),
                _ => settings,
            },
            location,
            name: self.name,
            namespace: self.namespace,
            format: self.output.map(Into::into),
        })
    }
}
