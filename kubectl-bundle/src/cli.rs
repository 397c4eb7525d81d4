//! Command line: one table of all verbs with help text, arguments and implementation. clap's
//! commands, completions and hints are derived from it. A new verb is one line here and one module
//! in `commands` with its arguments, settings and implementation, such as `init`.

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::args::{self, KeysVerb, PolicyVerb, TrustVerb};
use crate::commands::package::init::{self, Init};
use crate::commands::transfer::copying::interruptible;
use crate::commands::webhook::{install, uninstall};
use crate::commands::{ArtifactOrFile, in_runtime};
use crate::failure::Outcome;
use crate::settings::{Environment, installing, shipping, signing, trust, verbs, writing};
use crate::ui::Ui;

/// Package, sign, ship, check and deploy Kubernetes manifests as bundles.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl bundle",
    bin_name = "kubectl bundle",
    version,
    after_help = crate::failure::exit::TABLE,
    after_long_help = crate::failure::exit::TABLE,
    arg_required_else_help = true,
    max_term_width = 110,
)]
pub(crate) struct Cli {
    /// Verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Flags that every verb has.
    #[command(flatten)]
    pub(crate) global: args::Global,
}

/// Declares the verbs. Each line has the variant with its help text, the type of its arguments, and
/// the expression that runs it.
macro_rules! verbs {
    (
        |$environment:ident, $ui:ident|
        $( $(#[$attribute:meta])* $verb:ident($arguments:ty) => |$typed:ident| $run:expr, )*
    ) => {
        /// Verbs.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Verb {
            $( $(#[$attribute])* $verb($arguments), )*
        }

        impl Verb {
            /// Runs the verb with its parsed arguments.
            pub(crate) fn run(self, $environment: &Environment, $ui: &mut Ui) -> Outcome {
                match self {
                    $( Self::$verb($typed) => $run, )*
                }
            }
        }
    };
}

verbs! {
    |environment, ui|
    /// Write a bundle.yaml, or a small example
    Init(init::Arguments) => |typed| Init::from(typed).run(ui),
    /// Check a folder of manifests and pack it into one artifact
    Build(args::Build) => |typed| in_runtime(verbs::build(typed, environment)?.run(ui)),
    /// Push a bundle to a registry
    Push(args::Push) => |typed| in_runtime(interruptible(shipping::push(typed, environment)?.run(ui))),
    /// Pull a bundle from a registry into a layout or archive
    Pull(args::Pull) => |typed| in_runtime(interruptible(shipping::pull(typed, environment)?.run(ui))),
    /// Copy a bundle between registries, layouts and archives
    Copy(args::Copy) => |typed| in_runtime(interruptible(shipping::copy(typed, environment)?.run(ui))),
    /// Save bundles with signatures and images in one file
    Save(args::Save) => |typed| in_runtime(interruptible(shipping::save(typed, environment)?.run(ui))),
    /// Load a saved file into a registry
    Load(args::Load) => |typed| in_runtime(interruptible(shipping::load(typed, environment)?.run(ui))),
    /// Describe a bundle
    Inspect(args::Inspect) => |typed| in_runtime(verbs::inspect(typed, environment)?.run(ui)),
    /// Write the files of a bundle into a folder
    Unpack(args::Unpack) => |typed| in_runtime(verbs::unpack(typed, environment)?.run(ui)),
    /// Print the objects that would be installed
    Render(args::Render) => |typed| in_runtime(verbs::render(typed, environment)?.run(ui)),
    /// Create key pairs for signing
    #[command(disable_help_subcommand = true)]
    Keys(args::Keys) => |typed| match typed.verb {
        KeysVerb::Generate(typed) => signing::generate(typed, environment).run(ui),
        KeysVerb::Public(typed) => signing::public(typed, environment)?.run(ui),
        KeysVerb::Import(typed) => signing::import(typed, environment)?.run(ui),
        KeysVerb::Export(typed) => signing::export(typed, environment)?.run(ui),
    },
    /// Sign a bundle in a registry
    Sign(args::Sign) => |typed| match signing::sign(typed, environment)? {
        ArtifactOrFile::Artifact(sign) => in_runtime(sign.run(ui)),
        ArtifactOrFile::File(sign) => in_runtime(sign.run(ui)),
    },
    /// Attest something about a bundle in a registry
    Attest(args::Attest) => |typed| match signing::attest(typed, environment)? {
        ArtifactOrFile::Artifact(attest) => in_runtime(attest.run(ui)),
        ArtifactOrFile::File(sign) => in_runtime(sign.run(ui)),
    },
    /// Verify the signatures of a bundle
    Verify(args::Verify) => |typed| match trust::verify(typed, environment)? {
        ArtifactOrFile::Artifact(verify) => in_runtime(verify.run(ui)),
        ArtifactOrFile::File(verify) => in_runtime(verify.run(ui)),
    },
    /// Evaluate SignaturePolicies before they are applied
    #[command(disable_help_subcommand = true)]
    Policy(args::Policy) => |typed| match typed.verb {
        PolicyVerb::Test(typed) => in_runtime(trust::policy_test(typed, environment)?.run(ui)),
    },
    /// Get trust roots from a TUF repository
    #[command(disable_help_subcommand = true)]
    Trust(args::Trust) => |typed| match typed.verb {
        TrustVerb::Init(typed) => in_runtime(trust::init(typed, environment).run(ui)),
        TrustVerb::Update(typed) => in_runtime(trust::update(typed, environment).run(ui)),
        TrustVerb::Show(typed) => in_runtime(trust::show(typed, environment).run(ui)),
        TrustVerb::Reset => trust::reset(environment).run(ui),
    },
    /// Install a bundle, or upgrade to it
    Deploy(args::Deploy) => |typed| in_runtime(writing::deploy(typed, environment)?.run(ui)),
    /// Create a Bundle without installing it
    Create(args::Create) => |typed| in_runtime(writing::create(typed, environment)?.run(ui)),
    /// Review objects in files as admission would
    Check(args::Check) => |typed| in_runtime(verbs::check(typed, environment)?.run(ui)),
    /// List BundleDeployments
    Get(args::Get) => |typed| in_runtime(verbs::get(typed, environment)?.run(ui)),
    /// Describe one BundleDeployment
    Status(args::Status) => |typed| in_runtime(verbs::status(typed, environment)?.run(ui)),
    /// Delete BundleDeployments
    Delete(args::Delete) => |typed| in_runtime(writing::delete(typed, environment)?.run(ui)),
    /// Install bundle-webhook in a cluster
    Install(install::Arguments) => |typed| in_runtime(installing::install(typed, environment)?.run(ui)),
    /// Remove bundle-webhook from a cluster
    Uninstall(uninstall::Arguments) => |typed| in_runtime(installing::uninstall(typed, environment)?.run(ui)),
    /// Print the versions of this program and of the cluster
    Version(args::Version) => |typed| in_runtime(verbs::version(typed, environment)?.run(ui)),
    /// Print a completion script for a shell or for kubectl
    Completion(args::Completion) => |typed| verbs::completion(typed, command())?.run(ui),
    /// Print completion candidates for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(args::Complete) => |typed| in_runtime(verbs::complete(typed, environment, command())?.run(ui)),
}

/// Returns clap's command.
pub(crate) fn command() -> clap::Command {
    // Helm's flag name works for verbs that read no other password.
    Cli::command().mut_subcommands(|verb| {
        let has = |id: &str| verb.get_arguments().any(|argument| argument.get_id() == id);
        if has("registry_password_stdin") && !has("password_stdin") {
            verb.mut_arg("registry_password_stdin", |argument| {
                argument.visible_alias("password-stdin")
            })
        } else {
            verb
        }
    })
}

/// Parses the command line.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_an_entry_in_the_cli_reference() {
        let docs = include_str!("../../docs/reference/cli.md");
        for verb in command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
        {
            let name = verb.get_name();
            assert!(
                docs.contains(&format!("`{name}")) || docs.contains(&format!("bundle {name}")),
                "docs/reference/cli.md does not name `{name}`"
            );
        }
    }
}
