//! Arguments of `load`.

use std::path::PathBuf;

use clap::Args;

use super::Load;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags};

/// Load a file of `save` into a registry, below one prefix, with unchanged digests and signatures.
///
/// registry.example.com/team/web:1.4.0 becomes PREFIX/registry.example.com/team/web:1.4.0. An
/// underscore separates the host and the port of a registry. The command prints a table of old and
/// new references. --mirrors-out writes the mirror configuration for a cluster: registries.conf for
/// CRI-O and podman, and a folder certs.d with hosts.toml for containerd.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle load web.tar --to mirror.example.com:5000/air-gap --mirrors-out mirrors

  # A list of digests, with the content of the original registries
  kubectl bundle load web.sources.yaml --to mirror.example.com/all

  # A list of digests, with the content of another loaded registry
  kubectl bundle load web.sources.yaml --to inner.example.com --from mirror.example.com/all")]
pub(crate) struct Arguments {
    /// Archive or layout, or list of digests
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Target: REGISTRY[/PREFIX]
    #[arg(long, value_name = "REGISTRY[/PREFIX]")]
    pub(crate) to: String,
    /// For a list of digests: registry prefix with the content [default: the original references]
    #[arg(long, value_name = "REGISTRY[/PREFIX]")]
    pub(crate) from: Option<String>,
    /// Write the mirror configuration: all formats to a folder, or registries.conf to a file that
    /// ends in .conf
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) mirrors_out: Option<PathBuf>,
    /// Do not copy referrers: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Move tags that refer to other content
    #[arg(long)]
    pub(crate) overwrite_tag: bool,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `load`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Load> {
        Ok(Load {
            file: self.file,
            to: self.to.parse()?,
            from: self.from.as_deref().map(str::parse).transpose()?,
            mirrors_out: self.mirrors_out,
            no_referrers: self.no_referrers,
            overwrite_tag: self.overwrite_tag,
            format: self.output.format(),
            registry: self.registry.settings(environment)?,
        })
    }
}
