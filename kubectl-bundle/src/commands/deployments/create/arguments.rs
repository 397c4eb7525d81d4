//! Arguments of `create`.

use clap::Args;

use super::Create;
use crate::commands::deployments::arguments::{ContentFlags, WriteFlags};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, RegistryFlags};

/// Create a Bundle: content that is pulled, verified and stored, but not installed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle create web-1-4-0 registry.example.com/team/web:1.4.0 --wait")]
pub(crate) struct Arguments {
    /// Name of the Bundle, at most 52 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Flags of the content.
    #[command(flatten)]
    pub(crate) content: ContentFlags,
    /// Wait until the Bundle is unpacked
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
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
    /// Returns the settings of `create`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Create> {
        Ok(Create {
            name: self.name,
            content: self
                .content
                .settings(&self.reference, self.registry, environment)?,
            write: self.write.settings(self.wait, self.kube, environment)?,
        })
    }
}
