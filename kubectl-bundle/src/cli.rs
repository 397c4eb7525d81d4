//! Command line: one table of all verbs with help text, arguments and implementation. clap's
//! commands, completions and hints are derived from this table. A new verb needs:
//!
//! - a line in this table
//! - a folder in one of the groups of `commands`, for example `package/init`: `arguments.rs` has
//!   the arguments and the examples of the help text, and `mod.rs` has the implementation
//! - a line in the help text in `tests/cli/help.rs`, and a row in `docs/reference/cli.md`
//! - a run of `cargo xtask gen`, which writes `docs/reference/commands.md`

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::deployments::{
    adopt, content, create, delete, deploy, diff, get, history, pause, plan, resume, rollback, run,
    status, tree, unmanage,
};
use crate::commands::package::{build, init, inspect, render, unpack};
use crate::commands::program::{complete, completion, man, version};
use crate::commands::signing::{attest, keys, policy, sign, trust, verify};
use crate::commands::transfer::{copy, load, pull, push, save};
use crate::commands::webhook::{check, doctor, install, uninstall};
use crate::commands::{ArtifactOrFile, in_runtime, interruptible};
use crate::failure::Outcome;
use crate::flags::{Environment, GlobalFlags};
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
    /// Verb with its arguments.
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Flags that every verb has.
    #[command(flatten)]
    pub(crate) global: GlobalFlags,
}

/// Declares the verbs. Each line has the variant with its help text, the type of its arguments, and
/// the expression that runs the verb.
macro_rules! verbs {
    (
        |$environment:ident, $ui:ident|
        $( $(#[$attribute:meta])* $verb:ident($arguments:ty) => |$typed:ident| $run:expr, )*
    ) => {
        /// Verbs of the command line.
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
    Init(init::Arguments) => |typed| typed.settings().run(ui),
    /// Check a folder of manifests and pack it into one artifact
    Build(build::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Push a bundle to a registry
    Push(push::Arguments) => |typed| in_runtime(interruptible(typed.settings(environment)?.run(ui))),
    /// Pull a bundle from a registry into a layout or archive
    Pull(pull::Arguments) => |typed| in_runtime(interruptible(typed.settings(environment)?.run(ui))),
    /// Copy a bundle between registries, layouts and archives
    Copy(copy::Arguments) => |typed| in_runtime(interruptible(typed.settings(environment)?.run(ui))),
    /// Save bundles with signatures and images in one file
    Save(save::Arguments) => |typed| in_runtime(interruptible(typed.settings(environment)?.run(ui))),
    /// Load a saved file into a registry
    Load(load::Arguments) => |typed| in_runtime(interruptible(typed.settings(environment)?.run(ui))),
    /// Describe a bundle
    Inspect(inspect::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Write the files of a bundle into a folder
    Unpack(unpack::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Print the objects that would be installed
    Render(render::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Create key pairs for signing
    #[command(disable_help_subcommand = true)]
    Keys(keys::Arguments) => |typed| typed.run(environment, ui),
    /// Sign a bundle in a registry
    Sign(sign::Arguments) => |typed| match typed.settings(environment)? {
        ArtifactOrFile::Artifact(sign) => in_runtime(sign.run(ui)),
        ArtifactOrFile::File(sign) => in_runtime(sign.run(ui)),
    },
    /// Sign a statement about a bundle in a registry
    Attest(attest::Arguments) => |typed| match typed.settings(environment)? {
        ArtifactOrFile::Artifact(attest) => in_runtime(attest.run(ui)),
        ArtifactOrFile::File(sign) => in_runtime(sign.run(ui)),
    },
    /// Verify the signatures of a bundle
    Verify(verify::Arguments) => |typed| match typed.settings(environment)? {
        ArtifactOrFile::Artifact(verify) => in_runtime(verify.run(ui)),
        ArtifactOrFile::File(verify) => in_runtime(verify.run(ui)),
    },
    /// Evaluate SignaturePolicies before they are applied
    #[command(disable_help_subcommand = true)]
    Policy(policy::Arguments) => |typed| typed.run(environment, ui),
    /// Get trust roots from a TUF repository
    #[command(disable_help_subcommand = true)]
    Trust(trust::Arguments) => |typed| typed.run(environment, ui),
    /// Install a bundle, or upgrade to it
    #[command(visible_alias = "upgrade")]
    Deploy(deploy::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Install a bundle over existing objects
    Adopt(adopt::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Install a local folder without a registry
    Run(run::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Create a Bundle without installing it
    Create(create::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Review objects in files as admission would
    Check(check::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// List BundleDeployments
    Get(get::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Describe one BundleDeployment
    Status(status::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Print the objects of a BundleDeployment below their owners
    Tree(tree::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// List or download the content of a Bundle
    Content(content::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Print the changes of an upgrade, or the drift of the installed objects
    Diff(diff::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Print what the reconciler would do, and the checks that would stop it
    Plan(plan::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// List the revisions of a BundleDeployment
    History(history::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Install a former revision
    Rollback(rollback::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Stop reconciling BundleDeployments
    Pause(pause::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Continue reconciling BundleDeployments
    Resume(resume::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Delete BundleDeployments
    Delete(delete::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Delete BundleDeployments and keep their objects
    Unmanage(unmanage::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Install bundle-webhook in a cluster
    Install(install::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Remove bundle-webhook from a cluster
    Uninstall(uninstall::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Check the plugin, the cluster and bundle-webhook
    Doctor(doctor::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Print the versions of this program and of the cluster
    Version(version::Arguments) => |typed| in_runtime(typed.settings(environment)?.run(ui)),
    /// Print a completion script, or install completion for kubectl
    #[command(disable_help_subcommand = true)]
    Completion(completion::Arguments) => |typed| typed.run(command(), environment, ui),
    /// Print completion candidates for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(complete::Arguments) => |typed| in_runtime(typed.settings(environment, command())?.run(ui)),
    /// Write man pages for a release
    #[command(name = "__man", hide = true)]
    Man(man::Arguments) => |typed| typed.settings(command()).run(ui),
}

/// Returns clap's command.
pub(crate) fn command() -> clap::Command {
    // Helm's flag name `--password-stdin` is an alias of `--registry-password-stdin`, for verbs
    // that have no other flag `--password-stdin`.
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

    /// Returns the arguments of each `kubectl bundle` in the examples of a help text.
    fn examples(help: &str) -> Vec<Vec<String>> {
        let Some((_, examples)) = help.split_once("Examples:\n") else {
            return Vec::new();
        };
        let text = examples.replace("\\\n", " ").replace("<(", "$(");
        let lines = text.lines().map(str::trim);
        let mut commands: Vec<String> = Vec::new();
        for line in lines.filter(|line| !line.starts_with('#')) {
            let mut line = line.to_owned();
            while let Some((before, rest)) = line.split_once("$(") {
                let (substituted, after) = rest.split_once(')').expect("a closed substitution");
                commands.push(substituted.to_owned());
                line = format!("{before}SUBSTITUTED{after}");
            }
            commands.push(line);
        }
        let arguments = |command: &String| {
            let (before, _) = command.split_once("kubectl bundle ")?;
            let words = shlex::split(&command[before.len()..]).expect("closed quotes");
            let ends = |word: &String| ["|", "&&", ">", "<"].contains(&word.as_str());
            Some(words.into_iter().take_while(|word| !ends(word)).collect())
        };
        commands.iter().filter_map(arguments).collect()
    }

    /// Checks the examples of all verbs below `parent`.
    fn check_examples(parent: &clap::Command, path: &str, inherited: bool) {
        let visible = parent.get_subcommands().filter(|verb| !verb.is_hide_set());
        for verb in visible.filter(|verb| verb.get_name() != "help") {
            let path = format!("{path} {}", verb.get_name());
            let help = verb.get_after_help().or(verb.get_after_long_help());
            let examples = examples(&help.map(ToString::to_string).unwrap_or_default());
            for example in &examples {
                let parsed = command().try_get_matches_from(&example[1..]);
                assert!(
                    parsed.is_ok(),
                    "{path}: {}: {}",
                    example.join(" "),
                    parsed.unwrap_err()
                );
            }
            let has_examples = inherited || !examples.is_empty();
            if verb.has_subcommands() {
                check_examples(verb, &path, has_examples);
            } else {
                assert!(has_examples, "{path} has no examples");
            }
        }
    }

    #[test]
    fn every_verb_has_examples_whose_flags_exist() {
        check_examples(&command(), "kubectl bundle", false);
    }

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
