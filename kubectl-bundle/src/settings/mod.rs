//! From what was typed to what is meant: environment, defaults and checks across flags, in one place.
//! Not here: clap's types (args) and the work (commands).

mod cluster;
mod duration;
mod environment;

use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};

use bundle_trust::keys::KeyKind;

use crate::args::{self, Color, Global, KeyType, Keys, KeysVerb, Verb};
use crate::cluster::apply::DryRun;
use crate::commands::{Command, completion, delete, get, keys, status, version};
use crate::failure::Outcome;
use crate::ui::{Style, Verbosity};

pub(crate) use environment::Environment;

/// How to print.
pub(crate) fn style(global: &Global, environment: &Environment) -> Style {
    let colored = |terminal: bool| match global.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            !environment.no_color
                && (environment.force_color || (terminal && !environment.dumb_terminal))
        }
    };
    Style {
        color_out: colored(environment.stdout_is_terminal),
        color_err: colored(environment.stderr_is_terminal),
        progress: environment.stderr_is_terminal && !environment.dumb_terminal,
        verbosity: if global.quiet {
            Verbosity::Quiet
        } else if global.verbose {
            Verbosity::Verbose
        } else {
            Verbosity::Normal
        },
    }
}

/// The command to run.
pub(crate) fn command(verb: Verb, environment: &Environment) -> Outcome<Command> {
    Ok(match verb {
        Verb::Keys(Keys {
            verb: KeysVerb::Generate(args),
        }) => Command::KeysGenerate(keys::generate::Generate {
            prefix: args.output_key_prefix,
            kind: match args.key_type {
                KeyType::P256 => KeyKind::EcdsaP256,
                KeyType::Ed25519 => KeyKind::Ed25519,
            },
            password: environment.password_source(args.password_stdin),
        }),
        Verb::Get(args) => Command::Get(get::Get {
            names: args.names,
            format: args.output.map(Into::into),
            cluster: cluster::settings(args.kube, environment)?,
        }),
        Verb::Status(args) => Command::Status(status::Status {
            name: args.name,
            format: args.output.map(Into::into),
            cluster: cluster::settings(args.kube, environment)?,
        }),
        Verb::Delete(args) => Command::Delete(delete::Delete {
            names: args.names,
            wait: wait(args.wait, &args.timeout)?,
            ignore_not_found: args.ignore_not_found,
            dry_run: dry_run(args.dry_run),
            cluster: cluster::settings(args.kube, environment)?,
        }),
        Verb::Version(args) => Command::Version(version::Version {
            cluster: if args.client {
                None
            } else {
                Some(cluster::settings(args.kube, environment)?)
            },
            format: args.output.map(Into::into),
        }),
        Verb::Completion(args) => Command::Completion(completion::Completion {
            shell: args.shell.into(),
        }),
    })
}

/// Whether to wait, and for how long at most.
fn wait(asked: bool, timeout: &str) -> Outcome<Option<Option<Duration>>> {
    let limit = duration::limit("--timeout", timeout)?;
    Ok(asked.then_some(limit))
}

fn dry_run(mode: args::DryRun) -> DryRun {
    match mode {
        args::DryRun::None => DryRun::None,
        args::DryRun::Client => DryRun::Client,
        args::DryRun::Server => DryRun::Server,
    }
}

/// A flag whose value cannot be used.
fn unusable(flag: &str, message: &str) -> Finding {
    Finding::error(codes::usage::BAD_ARGUMENT, message).at_field(flag)
}
