//! Arguments of `plan`.

use clap::Args;

use super::Plan;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, OutputFlags, RegistryFlags, StateNamespaceFlags};

/// Print what the reconciler would do: its steps, the changes of the objects, and the checks that
/// would stop it.
///
/// Without REF, the plan is for the content of the current template. With REF, it is for an upgrade
/// to this content. The steps come from the planner of bundle-webhook. The changes come from dry
/// runs with your permissions, as in `kubectl bundle diff`. The plan does not verify signatures,
/// and does not check the rules for packages: use `kubectl bundle verify` and `kubectl bundle
/// check`.
///
/// Exit codes: 0 no check fails, 3 a check fails, 4 the result of a check is unknown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # The plan of an upgrade
  kubectl bundle plan web registry.example.com/team/web:1.5.0

  # The plan for the current template
  kubectl bundle plan web

  # The checks that fail
  kubectl bundle plan web registry.example.com/team/web:1.5.0 -o json | jq '.checks[] | select(.result == \"fails\")'")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Reference, OCI layout or archive, or folder of manifests [default: content of the current
    /// template]
    #[arg(value_name = "REF|LAYOUT|ARCHIVE|DIR")]
    pub(crate) source: Option<String>,
    /// Output flags.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Flag for the namespace of the inventories.
    #[command(flatten)]
    pub(crate) state: StateNamespaceFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `plan`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Plan> {
        let source = self.source.as_deref();
        Ok(Plan {
            name: self.name,
            location: source.map(ArtifactLocation::source).transpose()?,
            registry: self.registry.settings(environment)?,
            state_namespace: self.state.settings()?,
            format: self.output.format(),
            cluster: self.kube.settings(environment)?,
        })
    }
}
