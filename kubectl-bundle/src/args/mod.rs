//! What was typed, and nothing else: clap's types, one file a verb. The doc comments are the help texts.
//! Not here: the environment, defaults that depend on it, checks across flags (settings), or any work (commands).

mod attest;
mod build;
mod check;
mod completion;
mod delete;
mod deploy;
mod get;
mod global;
mod init;
mod inspect;
mod keys;
mod output;
mod push;
mod render;
mod shipping;
mod sign;
mod trust;
mod unpack;
mod verify;
mod version;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use attest::Attest;
pub(crate) use build::Build;
pub(crate) use check::Check;
pub(crate) use completion::{Complete, Completion};
pub(crate) use delete::Delete;
pub(crate) use deploy::{
    Collision, Content, Create, CustomResources, Deletion, Deploy, Drift, Replace, WaitFor, Write,
};
pub(crate) use get::{Get, Status};
pub(crate) use global::{Color, DryRun, Global, Kube, Registry};
pub(crate) use init::Init;
pub(crate) use inspect::Inspect;
pub(crate) use keys::{Export, Generate, Import, KeyType, Keys, KeysVerb, PublicHalf};
pub(crate) use output::{Data, FormatOrPath, Object, Wide};
pub(crate) use push::Push;
pub(crate) use render::Render;
pub(crate) use shipping::{Along, Copy, Load, Pull, Save};
pub(crate) use sign::{AuthFlow, Keyless, Sign, SignBy, SignatureForm};
pub(crate) use trust::{Reach, Trust, TrustInit, TrustShow, TrustUpdate, TrustVerb};
pub(crate) use unpack::Unpack;
pub(crate) use verify::{Policy, PolicyTest, PolicyVerb, TrustRoot, Verify};
pub(crate) use version::Version;

/// Package, sign, ship, check and deploy Kubernetes manifests as bundles.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl bundle",
    bin_name = "kubectl bundle",
    version,
    after_help = crate::exit::TABLE,
    after_long_help = crate::exit::TABLE,
    arg_required_else_help = true,
    max_term_width = 110,
)]
pub(crate) struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Flags that every verb has.
    #[command(flatten)]
    pub(crate) global: Global,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Write a bundle.yaml, or a small example
    Init(Init),
    /// Check a folder of manifests and pack it into one artifact
    Build(Build),
    /// Push a bundle to a registry
    Push(Push),
    /// Pull a bundle from a registry into a layout or archive
    Pull(Pull),
    /// Copy a bundle between registries, layouts and archives
    Copy(Copy),
    /// Save bundles with signatures and images in one file
    Save(Save),
    /// Load such a file into a registry
    Load(Load),
    /// Show what a bundle is and holds
    Inspect(Inspect),
    /// Write the files of a bundle into a folder
    Unpack(Unpack),
    /// Print the objects that would be installed
    Render(Render),
    /// Make key pairs for signing
    #[command(disable_help_subcommand = true)]
    Keys(Keys),
    /// Sign a bundle in a registry
    Sign(Sign),
    /// Attest something about a bundle in a registry
    Attest(Attest),
    /// Verify who signed a bundle
    Verify(Verify),
    /// Try SignaturePolicies before they are in force
    #[command(disable_help_subcommand = true)]
    Policy(Policy),
    /// Get trust roots from a TUF repository
    #[command(disable_help_subcommand = true)]
    Trust(Trust),
    /// Install a bundle, or upgrade to it
    Deploy(Deploy),
    /// Create a Bundle without installing it
    Create(Create),
    /// Say what admission would say about files
    Check(Check),
    /// List what is deployed, at one look
    Get(Get),
    /// Show one deployment in detail
    Status(Status),
    /// Delete deployments
    Delete(Delete),
    /// Print the versions of this program and of the cluster
    Version(Version),
    /// Print a completion script for a shell or for kubectl
    Completion(Completion),
    /// Print candidates for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
}

/// The command as clap sees it.
pub(crate) fn command() -> clap::Command {
    // Where no other password is read, helm's name for the flag will do.
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

/// What was typed.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}
