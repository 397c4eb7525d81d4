//! Arguments of `policy` and its verb.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::test::PolicyTest;
use crate::commands::in_runtime;
use crate::commands::signing::arguments::TrustRootFlags;
use crate::failure::Outcome;
use crate::flags::{Environment, OutputFlags, RegistryFlags, registry};
use crate::ui::Ui;

/// Work with SignaturePolicies.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Verb.
    #[command(subcommand)]
    pub(crate) verb: PolicyVerb,
}

impl Arguments {
    /// Runs the verb.
    pub(crate) fn run(self, environment: &Environment, ui: &mut Ui) -> Outcome {
        match self.verb {
            PolicyVerb::Test(typed) => in_runtime(typed.settings(environment)?.run(ui)),
        }
    }
}

/// Verbs of `policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Evaluate the policies of a file for a bundle
    Test(TestArguments),
}

/// Evaluate the SignaturePolicies of a file for a bundle. Print the result of each policy and the
/// result of all policies together.
///
/// Secrets and ConfigMaps that the policies reference are read from the same file. Exit code 0
/// means admitted, 3 rejected, 4 unknown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle policy test policies.yaml --image registry.example.com/team/web:1.4.0")]
pub(crate) struct TestArguments {
    /// File with SignaturePolicies, and with their Secrets and ConfigMaps
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(long, value_name = "REF")]
    pub(crate) image: String,
    /// Flags for the trust root.
    #[command(flatten)]
    pub(crate) root: TrustRootFlags,
    /// Flag for the output format.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl TestArguments {
    /// Returns the settings of `policy test`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<PolicyTest> {
        let registry = self.registry.settings(environment)?;
        Ok(PolicyTest {
            file: self.file,
            image: registry::reference(&self.image)?,
            root: self.root.settings(environment, &registry.ca_files),
            format: self.output.format(),
            registry,
        })
    }
}
