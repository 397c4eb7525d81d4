//! Flags that several verbs share: for the content of a Bundle, and for writes.

use clap::{Args, ValueEnum};

use super::bundle_spec::{BundleContent, Setting};
use super::state::prediction::Goal;
use super::write::WriteSettings;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DryRunMode, Environment, ObjectFormat, RegistryFlags, registry};

/// Flag for the class.
#[derive(Debug, Args)]
pub(crate) struct ClassFlags {
    /// ProvisionerClass [default: the class of the existing object, else the class for the format
    /// of the package]
    #[arg(long, value_name = "NAME")]
    pub(crate) class: Option<String>,
}

/// Flags of the content.
#[derive(Debug, Args)]
pub(crate) struct ContentFlags {
    /// Flag for the class.
    #[command(flatten)]
    pub(crate) class: ClassFlags,
    /// Name of a Secret in the system namespace with credentials for the registry; an empty name
    /// removes the setting
    #[arg(long, value_name = "NAME")]
    pub(crate) pull_secret: Option<String>,
    /// Keep a tag instead of pinning it to its current digest
    #[arg(long)]
    pub(crate) keep_tag: bool,
    /// Add manifest and signatures to the object, so that admission needs no registry
    #[arg(long, conflicts_with = "keep_tag")]
    pub(crate) with_proof: bool,
}

impl ContentFlags {
    /// Returns the settings of the content.
    pub(crate) fn settings(
        self,
        reference: &str,
        flags: RegistryFlags,
        environment: &Environment,
    ) -> Outcome<BundleContent> {
        let reference = registry::reference(reference)?;
        Ok(BundleContent {
            class: self.class.class,
            pull_secret: match self.pull_secret {
                None => Setting::Keep,
                Some(name) if name.is_empty() => Setting::Unset,
                Some(name) => Setting::Set(name),
            },
            keep_tag: self.keep_tag,
            with_proof: self.with_proof,
            registry: flags.settings(environment)?.of(&reference),
            reference,
        })
    }
}

/// Flags of writes.
#[derive(Debug, Args)]
pub(crate) struct WriteFlags {
    /// Do not change the cluster; with `server`, the API server validates the request
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRunMode::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRunMode,
    /// Also set fields of other field managers
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// Timeout of --wait; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Print the object in this format instead of the result
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        help_heading = "Output options"
    )]
    pub(crate) output: Option<ObjectFormat>,
}

impl WriteFlags {
    /// Returns the settings of the write.
    pub(crate) fn settings(
        &self,
        waits: bool,
        kube: ClusterFlags,
        environment: &Environment,
    ) -> Outcome<WriteSettings> {
        Ok(WriteSettings {
            dry_run: self.dry_run.into(),
            force: self.force_conflicts,
            wait: wait(waits, &self.timeout)?,
            format: self.output.map(Into::into),
            cluster: kube.settings(environment)?,
        })
    }
}

/// State to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFlag {
    /// Do not wait
    False,
    /// Wait until the content is installed
    True,
    /// Wait until the content is installed and every object is healthy
    Healthy,
}

impl WaitFlag {
    /// Returns `true` if the command waits, and the state to wait for.
    pub(crate) fn goal(self) -> (bool, Goal) {
        match self {
            Self::False => (false, Goal::Installed),
            Self::True => (true, Goal::Installed),
            Self::Healthy => (true, Goal::Healthy),
        }
    }
}
